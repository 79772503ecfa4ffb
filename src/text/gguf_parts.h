#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/gguf_tokenizer.h"

namespace wgrad::text {

/// Collects the tokenizer's values from a GGUF file's metadata. `File` answers string(key),
/// strings(key), integer(key), integers(key), numbers(key) and boolean(key) with optionals, as
/// io::GgufFile does (this layer does not know that one).
template <class File>
GgufTokenizerParts gguf_tokenizer_parts(const File& file) {
  const auto text = [&](std::string_view key) -> std::optional<std::string> {
    const auto value = file.string(key);
    return value ? std::optional(std::string(*value)) : std::nullopt;
  };
  const auto id = [&](std::string_view key) -> std::optional<uint32_t> {
    const auto value = file.integer(key);
    return value ? std::optional(static_cast<uint32_t>(*value)) : std::nullopt;
  };
  const auto fill = [](auto& to, const auto& values) {
    if (values) to.assign(values->begin(), values->end());
  };
  GgufTokenizerParts parts;
  parts.model = text("tokenizer.ggml.model").value_or("");
  parts.pre = text("tokenizer.ggml.pre").value_or("");
  fill(parts.tokens, file.strings("tokenizer.ggml.tokens"));
  fill(parts.scores, file.numbers("tokenizer.ggml.scores"));
  fill(parts.types, file.integers("tokenizer.ggml.token_type"));
  fill(parts.merges, file.strings("tokenizer.ggml.merges"));
  parts.bos_id = id("tokenizer.ggml.bos_token_id");
  parts.eos_id = id("tokenizer.ggml.eos_token_id");
  parts.eot_id = id("tokenizer.ggml.eot_token_id");
  parts.unknown_id = id("tokenizer.ggml.unknown_token_id");
  parts.padding_id = id("tokenizer.ggml.padding_token_id");
  parts.add_bos = file.boolean("tokenizer.ggml.add_bos_token");
  parts.add_eos = file.boolean("tokenizer.ggml.add_eos_token");
  parts.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix");
  parts.chat_template = text("tokenizer.chat_template");
  return parts;
}

}  // namespace wgrad::text
