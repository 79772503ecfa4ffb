#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

namespace wgrad::text {

/// All that a model says about its text.
struct TextAssets {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;

  /// A token that the model does not have is empty, its id without value.
  std::string bos_token, eos_token, pad_token;
  std::optional<uint32_t> bos_id, eos_id, pad_id;
  /// What ends a generated text: EOS and whatever generation_config.json adds; sorted.
  std::vector<uint32_t> stop_ids;
  /// Whether encode() with add_special_tokens puts BOS first.
  bool adds_bos = false;

  bool is_stop(uint32_t id) const;
};

/// From tokenizer.json, and where they are there tokenizer_config.json, special_tokens_map.json,
/// chat_template.jinja, chat_template.json, additional_chat_templates/, generation_config.json and
/// config.json of a Hugging Face folder. Throws an input error that names the file.
TextAssets load_from_folder(const std::filesystem::path& folder);

/// From a GGUF file's keys; `where` names the file.
TextAssets load_from_gguf(const GgufTokenizerParts& parts, std::string_view where);

}  // namespace wgrad::text
