// Generation's path for one token on a GPU: other kernels than a prompt's, the same numbers.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

/// A model and what stands on it.
struct TokenCase {
  std::string model;
  bool dora = false;
};

void PrintTo(const TokenCase& c, std::ostream* out) { *out << c.model << (c.dora ? " dora" : ""); }

/// The config of a tiny model with sizes that the path takes.
ModelConfig config_of(const std::string& model) {
  const std::filesystem::path path = data_folder() / model / "config.json";
  nlohmann::json json = io::read_json_file(path);
  for (const char* size : {"hidden_size", "intermediate_size"}) {
    json[size] = (json.at(size).get<int64_t>() + 7) / 8 * 8;
  }
  return parse_config(json, model);
}

/// Weights of any config: waves, around 1 for norms.
class Waves : public io::TensorSource {
 public:
  explicit Waves(const ModelConfig& config) {
    for (const Parameters::Spec& spec : checkpoint_tensors(config)) {
      io::TensorView view;
      view.name = view.where = spec.name;
      view.shape = spec.shape;
      view.in_order = false;
      views_.emplace(spec.name, std::move(view));
    }
  }
  std::string where() const override { return "waves"; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, view] : views_) names.push_back(name);
    return names;
  }
  const io::TensorView* find(std::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }
  void read_bytes(const io::TensorView& tensor, int64_t, int64_t,
                  std::span<std::byte>) const override {
    throw runtime_failure(tensor.where, "has no stored bytes", "read it as f32");
  }
  void read_f32(const io::TensorView& tensor, int64_t begin, int64_t,
                std::span<float> out) const override {
    const bool vector = tensor.shape.size() == 1;
    const double first = static_cast<double>(begin * tensor.row_size() + 31) *
                         static_cast<double>(tensor.name.size() + tensor.name.front());
    for (size_t i = 0; i < out.size(); ++i) {
      const double wave = std::sin(1.7 * (first + static_cast<double>(i * i % 9973)));
      out[i] = static_cast<float>(vector ? 1 + 0.3 * wave : 0.3 * wave);
    }
  }
  void release(const io::TensorView&) const override {}

 private:
  std::map<std::string, io::TensorView, std::less<>> views_;
};

class TokenTest : public ::testing::TestWithParam<TokenCase> {
 protected:
  Context& ctx() const { return context(Device::kSoftwareGpu); }

  std::optional<Adapter> adapter(const Model& model) const {
    if (!GetParam().dora) return std::nullopt;
    Adapter made = Adapter::create(ctx(), model, {.rank = 4, .alpha = 6, .dora = true}, 5);
    move_from_start(ctx(), made);
    return made;
  }

  std::vector<KeyValueCache> caches(const Model& model) const {
    std::vector<KeyValueCache> all(static_cast<size_t>(model.config.layers));
    for (KeyValueCache& cache : all) {
      for (Tensor* rows : {&cache.keys, &cache.values}) {
        *rows = ctx().allocate({16, model.config.key_size()}, DType::kF32, "cache");
      }
    }
    return all;
  }
};

TEST_P(TokenTest, TheLogitsOfATokenAreThoseOfTheWholeRow) {
  const ModelConfig config = config_of(GetParam().model);
  const Model model = load_model(ctx(), config, std::make_shared<Waves>(config), {});
  const std::optional<Adapter> on = adapter(model);
  Decoder decoder(ctx(), model, on ? &*on : nullptr, {});
  const int64_t vocab = model.config.vocab_size;
  const std::vector<uint32_t> ids = {1, 17, 35, 8, 49, 4, 52, 11, 30};
  const std::vector<Row> rows = {{ids, {}}};
  const std::vector<float> whole =
      ctx().read<float>(decoder.logits(make_batch(ctx(), rows, vocab)));

  std::vector<KeyValueCache> held = caches(model);
  const std::span<const uint32_t> all(ids);
  decoder.next_logits(continue_row(ctx(), all.first(6), 0, vocab), held);
  for (size_t i = 6; i < ids.size(); ++i) {
    const Batch token = continue_row(ctx(), all.subspan(i, 1), static_cast<uint32_t>(i), vocab);
    const uint64_t before = ctx().device().statistics().dispatches;
    const std::vector<float> seen = ctx().read<float>(decoder.next_logits(token, held));
    const uint64_t dispatches = ctx().device().statistics().dispatches - before;
    const auto begin = whole.begin() + static_cast<int64_t>(i) * vocab;
    const std::vector<float> expected(begin, begin + vocab);
    // Sums of the same f32 products in another order.
    EXPECT_LE(difference(seen, expected), 2e-5 * largest(expected)) << "token " << i;
    // Layer by layer a block takes 17 or more; with DoRA 56.
    const int64_t at_most = GetParam().dora ? 26 : 11;
    EXPECT_LE(dispatches, static_cast<uint64_t>(at_most * model.config.layers + 6));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TokenTest,
                         ::testing::Values(TokenCase{"qwen3"}, TokenCase{"gemma2"},
                                           TokenCase{"gemma3"}, TokenCase{"olmo2"},
                                           TokenCase{"granite"}, TokenCase{"smollm3"},
                                           TokenCase{"qwen2", true}, TokenCase{"gemma2", true}),
                         [](const auto& info) {
                           return info.param.model + (info.param.dora ? "_dora" : "");
                         });

}  // namespace
}  // namespace wgrad::model::testing
