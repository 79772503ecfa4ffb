#include "data/model_text.h"

#include <filesystem>

#include "io/gguf.h"

namespace wgrad::data {
namespace {

template <typename To, typename From>
std::optional<To> convert(const std::optional<From>& value) {
  if (!value) return std::nullopt;
  return static_cast<To>(*value);
}

template <typename To, typename From>
std::vector<To> convert_all(const std::optional<std::vector<From>>& values) {
  if (!values) return {};
  return std::vector<To>(values->begin(), values->end());
}

std::string text_of(const io::GgufFile& file, std::string_view key) {
  return std::string(file.string(key).value_or(""));
}

text::GgufTokenizerParts tokenizer_parts(const io::GgufFile& file) {
  text::GgufTokenizerParts parts;
  parts.model = text_of(file, "tokenizer.ggml.model");
  parts.pre = text_of(file, "tokenizer.ggml.pre");
  parts.tokens = convert_all<std::string>(file.strings("tokenizer.ggml.tokens"));
  parts.scores = convert_all<float>(file.numbers("tokenizer.ggml.scores"));
  parts.types = convert_all<int32_t>(file.integers("tokenizer.ggml.token_type"));
  parts.merges = convert_all<std::string>(file.strings("tokenizer.ggml.merges"));
  parts.bos_id = convert<uint32_t>(file.integer("tokenizer.ggml.bos_token_id"));
  parts.eos_id = convert<uint32_t>(file.integer("tokenizer.ggml.eos_token_id"));
  parts.eot_id = convert<uint32_t>(file.integer("tokenizer.ggml.eot_token_id"));
  parts.unknown_id = convert<uint32_t>(file.integer("tokenizer.ggml.unknown_token_id"));
  parts.padding_id = convert<uint32_t>(file.integer("tokenizer.ggml.padding_token_id"));
  parts.add_bos = file.boolean("tokenizer.ggml.add_bos_token");
  parts.add_eos = file.boolean("tokenizer.ggml.add_eos_token");
  parts.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix");
  parts.chat_template = convert<std::string>(file.string("tokenizer.chat_template"));
  return parts;
}

}  // namespace

text::TextAssets load_model_text(const std::string& model) {
  const std::filesystem::path path(model);
  if (path.extension() != ".gguf") return text::load_from_folder(path);
  const io::GgufFile file = io::GgufFile::open(path);
  return text::load_from_gguf(tokenizer_parts(file), model);
}

}  // namespace wgrad::data
