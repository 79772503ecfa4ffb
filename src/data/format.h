#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wgrad/train.h"

namespace wgrad::data {

/// A conversation as the chat template takes it.
struct Conversation {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools = nullptr;  ///< null where there are none
  nlohmann::ordered_json extra = nullptr;  ///< further variables of the template, or null
  size_t first_counted_message = 0;        ///< assistant turns before it do not count
};

/// Plain text whose part from `completion_begin` (bytes) on counts; 0 counts all of it.
struct PlainText {
  std::string text;
  size_t completion_begin = 0;
  bool is_completion = false;  ///< false: a {"text"} row
};

/// One row of any format; exactly one of the two is set.
struct ParsedRow {
  std::optional<Conversation> conversation;
  std::optional<PlainText> plain;
};

/// Detects the format (messages, conversations, prompt/completion, instruction/output, text) and
/// checks types and roles. Rows of preference training are refused by name: their worse answer must
/// not be learned. `has_template`: Alpaca rows become a chat. Errors begin with `where`.
ParsedRow parse_row(const nlohmann::ordered_json& row, PromptStyle prompt_style, bool has_template,
                    std::string_view where);

}  // namespace wgrad::data
