#include "data/format.h"

#include <fmt/format.h>

#include <array>

namespace wgrad::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormats =
    "expected \"messages\", \"conversations\", \"prompt\" and \"completion\", \"instruction\" and "
    "\"output\", or \"text\"";

std::string keys_of(const Json& row) {
  std::string keys;
  for (const auto& [key, value] : row.items()) {
    if (!keys.empty()) keys += ", ";
    if (keys.size() > 200) return keys + "...";
    keys += fmt::format("\"{}\"", key.substr(0, 60));
  }
  return keys.empty() ? "no key" : "the keys " + keys;
}

const std::string& string_of(const Json& value, std::string_view key, std::string_view where) {
  if (!value.is_string()) {
    throw input_error(where, fmt::format("\"{}\" is {}", key, value.type_name()),
                      "expected a string", "mend the row, or pass --skip-bad-rows");
  }
  return value.get_ref<const std::string&>();
}

/// Content as one string: a string, null (tool calls alone), or a list of text parts.
Json content_of(const Json& message, std::string_view where) {
  auto found = message.find("content");
  if (found == message.end() || found->is_null()) {
    if (message.contains("tool_calls")) return nullptr;
    throw input_error(where, "a message has no \"content\"", "expected a string",
                      "mend the row, or pass --skip-bad-rows");
  }
  if (!found->is_array()) return string_of(*found, "content", where);
  std::string text;
  for (const Json& part : *found) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text")) {
      throw input_error(where, "a message's content has a part that is not text",
                        "expected {\"type\": \"text\", \"text\": ...}",
                        "leave such rows out, or pass --skip-bad-rows");
    }
    text += string_of(part["text"], "text", where);
  }
  return text;
}

void check_role(const std::string& role, std::string_view where) {
  constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
  for (const char* known : kRoles) {
    if (role == known) return;
  }
  throw input_error(where, fmt::format("role \"{}\"", role.substr(0, 60)),
                    "expected system, developer, user, assistant or tool",
                    "rename the role, or pass --skip-bad-rows");
}

Json messages_of(const Json& list, std::string_view key, std::string_view where) {
  if (!list.is_array() || list.empty()) {
    throw input_error(
        where, fmt::format("\"{}\" is {}", key, list.is_array() ? "empty" : list.type_name()),
        "expected a list of {\"role\", \"content\"}", "mend the row, or pass --skip-bad-rows");
  }
  Json messages = Json::array();
  for (const Json& message : list) {
    if (!message.is_object() || !message.contains("role")) {
      throw input_error(where, fmt::format("an entry of \"{}\" has no \"role\"", key),
                        "expected {\"role\", \"content\"}",
                        "mend the row, or pass --skip-bad-rows");
    }
    check_role(string_of(message["role"], "role", where), where);
    Json copy = message;
    copy["content"] = content_of(message, where);
    messages.push_back(std::move(copy));
  }
  return messages;
}

Json sharegpt_messages(const Json& list, std::string_view where) {
  if (!list.is_array()) return messages_of(list, "conversations", where);
  Json messages = Json::array();
  for (const Json& turn : list) {
    if (!turn.is_object() || !turn.contains("from") || !turn.contains("value")) {
      throw input_error(where, "an entry of \"conversations\" lacks \"from\" or \"value\"",
                        "expected {\"from\", \"value\"}", "mend the row, or pass --skip-bad-rows");
    }
    const std::string& from = string_of(turn["from"], "from", where);
    std::string role = from;
    if (from == "human") role = "user";
    if (from == "gpt" || from == "model" || from == "chatgpt") role = "assistant";
    if (role != "user" && role != "assistant" && role != "system" && role != "tool") {
      throw input_error(where, fmt::format("\"from\" is \"{}\"", from.substr(0, 60)),
                        "expected human, gpt or system", "rename it, or pass --skip-bad-rows");
    }
    messages.push_back({{"role", role}, {"content", string_of(turn["value"], "value", where)}});
  }
  return messages_of(messages, "conversations", where);
}

/// The row's "tools"; null where there are none.
Json tools_of(const Json& row, std::string_view where) {
  const auto tools = row.find("tools");
  if (tools == row.end() || tools->is_null()) return nullptr;
  if (!tools->is_array()) {
    throw input_error(where, fmt::format("\"tools\" is {}", tools->type_name()), "expected a list",
                      "mend the row, or pass --skip-bad-rows");
  }
  return tools->empty() ? Json(nullptr) : *tools;
}

PlainText plain_text(std::string text, size_t completion_begin, bool is_completion,
                     std::string_view where) {
  if (text.empty()) {
    throw input_error(where, "the row's text is empty", "expected some text",
                      "leave such rows out, or pass --skip-bad-rows");
  }
  return {std::move(text), completion_begin, is_completion};
}

Json turn(const char* role, std::string text) {
  return {{"role", role}, {"content", std::move(text)}};
}

ParsedRow prompt_completion(const Json& row, PromptStyle style, std::string_view where) {
  const Json& prompt = row["prompt"];
  const Json& completion = row["completion"];
  ParsedRow parsed;
  if (prompt.is_array() || completion.is_array()) {
    Conversation chat;
    chat.messages = messages_of(prompt, "prompt", where);
    chat.first_counted_message = chat.messages.size();
    for (Json& message : messages_of(completion, "completion", where)) {
      chat.messages.push_back(std::move(message));
    }
    chat.tools = tools_of(row, where);
    parsed.conversation = std::move(chat);
    return parsed;
  }
  const std::string& question = string_of(prompt, "prompt", where);
  const std::string& answer = string_of(completion, "completion", where);
  if (style == PromptStyle::kChat) {
    parsed.conversation =
        Conversation{Json::array({turn("user", question), turn("assistant", answer)}), nullptr, 0};
  } else {
    parsed.plain = plain_text(question + answer, question.size(), true, where);
  }
  return parsed;
}

ParsedRow alpaca(const Json& row, bool has_template, std::string_view where) {
  const std::string& instruction = string_of(row["instruction"], "instruction", where);
  const std::string& output = string_of(row["output"], "output", where);
  std::string input;
  if (row.contains("input") && !row["input"].is_null()) {
    input = string_of(row["input"], "input", where);
  }
  ParsedRow parsed;
  if (has_template) {
    const std::string user = input.empty() ? instruction : instruction + "\n\n" + input;
    parsed.conversation =
        Conversation{Json::array({turn("user", user), turn("assistant", output)}), nullptr, 0};
    return parsed;
  }
  std::string prompt =
      input.empty()
          ? fmt::format(
                "Below is an instruction that describes a task. Write a response that "
                "appropriately completes the request.\n\n### Instruction:\n{}\n\n"
                "### Response:\n",
                instruction)
          : fmt::format(
                "Below is an instruction that describes a task, paired with an input that "
                "provides further context. Write a response that appropriately completes "
                "the request.\n\n### Instruction:\n{}\n\n### Input:\n{}\n\n"
                "### Response:\n",
                instruction, input);
  const size_t begin = prompt.size();
  parsed.plain = PlainText{std::move(prompt) + output, begin, true};
  return parsed;
}

}  // namespace

ParsedRow parse_row(const Json& row, PromptStyle prompt_style, bool has_template,
                    std::string_view where) {
  if (!row.is_object()) {
    throw input_error(where, fmt::format("the row is {}", row.type_name()),
                      "expected a JSON object", "mend the row, or pass --skip-bad-rows");
  }
  ParsedRow parsed;
  if (row.contains("messages") || row.contains("conversations")) {
    Conversation chat;
    chat.messages = row.contains("messages") ? messages_of(row["messages"], "messages", where)
                                             : sharegpt_messages(row["conversations"], where);
    chat.tools = tools_of(row, where);
    parsed.conversation = std::move(chat);
  } else if (row.contains("prompt") && row.contains("completion")) {
    parsed = prompt_completion(row, prompt_style, where);
  } else if (row.contains("instruction") && row.contains("output")) {
    parsed = alpaca(row, has_template, where);
  } else if (row.contains("text")) {
    parsed.plain = plain_text(string_of(row["text"], "text", where), 0, false, where);
  } else {
    throw input_error(where, "the row has " + keys_of(row), kFormats,
                      "rename its keys, or pass --skip-bad-rows");
  }
  return parsed;
}

}  // namespace wgrad::data
