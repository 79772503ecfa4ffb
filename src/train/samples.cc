#include "train/samples.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "io/json.h"
#include "model/generate.h"

namespace wgrad::train {
namespace {

constexpr size_t kMostPrompts = 64;
constexpr size_t kMostPromptBytes = size_t{1} << 20;

/// The lines of a text that are not blank, without what ends them.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.emplace_back(line);
  }
  return lines;
}

std::vector<std::string> read_prompts(const TrainOptions& options) {
  std::vector<std::string> prompts;
  if (!options.sample_prompt.empty()) prompts.push_back(options.sample_prompt);
  if (options.sample_prompts.empty()) return prompts;
  const std::string text = io::read_text_file(options.sample_prompts, kMostPromptBytes);
  if (io::find_invalid_utf8(text) != std::string::npos) {
    throw input_error(options.sample_prompts, "the text is not UTF-8", "expected a prompt a line",
                      "mend the file");
  }
  std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) {
    throw input_error(options.sample_prompts, "holds no prompt", "expected a prompt a line",
                      "mend the file");
  }
  prompts.insert(prompts.end(), std::make_move_iterator(lines.begin()),
                 std::make_move_iterator(lines.end()));
  if (prompts.size() > kMostPrompts) {
    throw input_error("--sample-prompts", fmt::format("{} prompts", prompts.size()),
                      fmt::format("expected {} at most", kMostPrompts),
                      "keep the ones that matter");
  }
  return prompts;
}

std::vector<uint32_t> encode(const text::TextAssets& assets, const std::string& prompt, bool raw) {
  if (raw || !assets.chat_template) return assets.tokenizer.encode(prompt, true).ids;
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", prompt}}};
  return assets.tokenizer.encode(assets.chat_template->render(messages, true), false).ids;
}

}  // namespace

bool Sampler::wanted(const TrainOptions& options) {
  return !options.sample_prompt.empty() || !options.sample_prompts.empty();
}

Sampler::Sampler(const TrainOptions& options, text::TextAssets assets, int64_t max_positions)
    : assets_(std::move(assets)), max_tokens_(options.sample_tokens) {
  for (std::string& text : read_prompts(options)) {
    std::vector<uint32_t> ids = encode(assets_, text, options.sample_raw);
    const int64_t tokens = static_cast<int64_t>(ids.size());
    if (tokens < 1 || tokens >= max_positions) {
      throw input_error(fmt::format("sample prompt \"{}\"", text.substr(0, 40)),
                        fmt::format("{} tokens", tokens),
                        fmt::format("expected 1 to {}, what the model takes", max_positions - 1),
                        "give another prompt");
    }
    prompts_.push_back({std::move(text), std::move(ids)});
  }
}

std::vector<Sample> Sampler::take(Context& ctx, const model::Model& model,
                                  const model::Adapter* adapter, int64_t step) const {
  model::GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = max_tokens_;
  // A plan's tokens mean nothing, and it is for the longest answers.
  if (ctx.kind() != DeviceKind::kPlan) options.stop_ids = assets_.stop_ids;
  std::vector<Sample> samples;
  for (const Prompt& prompt : prompts_) {
    model::Generator generator(ctx, model, adapter);
    const std::vector<uint32_t> ids = generator.generate(prompt.ids, options);
    samples.push_back({step, prompt.text, assets_.tokenizer.decode(ids, true)});
  }
  // The steps take their memory as if nothing had been between them.
  ctx.trim();
  return samples;
}

}  // namespace wgrad::train
