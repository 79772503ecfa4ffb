#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wgrad::text {

/// tokenizer.ggml.token_type.
enum GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// What a GGUF file says of its tokenizer: the values of its tokenizer.* keys.
struct GgufTokenizerParts {
  std::string model;                         // tokenizer.ggml.model
  std::string pre;                           // tokenizer.ggml.pre
  std::vector<std::string> tokens;           // tokenizer.ggml.tokens
  std::vector<float> scores;                 // tokenizer.ggml.scores
  std::vector<int32_t> types;                // tokenizer.ggml.token_type
  std::vector<std::string> merges;           // tokenizer.ggml.merges
  std::optional<uint32_t> bos_id;            // tokenizer.ggml.bos_token_id
  std::optional<uint32_t> eos_id;            // tokenizer.ggml.eos_token_id
  std::optional<uint32_t> eot_id;            // tokenizer.ggml.eot_token_id
  std::optional<uint32_t> unknown_id;        // tokenizer.ggml.unknown_token_id
  std::optional<uint32_t> padding_id;        // tokenizer.ggml.padding_token_id
  std::optional<bool> add_bos;               // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;               // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;      // tokenizer.ggml.add_space_prefix
  std::optional<std::string> chat_template;  // tokenizer.chat_template
};

/// The same tokenizer as the text of a tokenizer.json. Throws an input error that names the key
/// for parts that contradict each other, and for a model or pre-tokenizer that is not known: a
/// guess would give other ids than the model was trained with.
std::string gguf_tokenizer_json(const GgufTokenizerParts& parts, std::string_view where);

}  // namespace wgrad::text
