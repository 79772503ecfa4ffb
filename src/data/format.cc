#include "data/format.h"

#include <fmt/format.h>

#include <array>

#include "io/json.h"

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

/// Whether a message says itself that it counts: "weight" 0 or 1, "train" true or false.
void check_counts(const Json& message, std::string_view where) {
  const auto refuse = [&](const char* key, const char* expected) {
    throw input_error(where, fmt::format("a message's \"{}\" is {}", key, message[key].dump()),
                      expected, "mend the row, or pass --skip-bad-rows");
  };
  if (message.contains("weight") && message["weight"] != 0 && message["weight"] != 1) {
    refuse("weight", "expected 0 (the turn does not count) or 1");
  }
  if (message.contains("train") && !message["train"].is_boolean()) {
    refuse("train", "expected true or false");
  }
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
    check_counts(message, where);
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
    Json message = {{"role", role}, {"content", string_of(turn["value"], "value", where)}};
    for (const char* key : {"weight", "train"}) {
      if (turn.contains(key)) message[key] = turn[key];
    }
    messages.push_back(std::move(message));
  }
  return messages_of(messages, "conversations", where);
}

/// The row's "tools", a list or, as data sets with fixed columns keep it, the JSON text of one;
/// null where there are none.
Json tools_of(const Json& row, std::string_view where) {
  const auto found = row.find("tools");
  if (found == row.end() || found->is_null()) return nullptr;
  Json tools = *found;
  if (tools.is_string()) {
    const std::string text = tools.get<std::string>();
    if (text.empty()) return nullptr;
    tools = io::parse_ordered_json(text, {.where = fmt::format("{}, \"tools\"", where)});
  }
  if (!tools.is_array()) {
    throw input_error(where, fmt::format("\"tools\" is {}", tools.type_name()), "expected a list",
                      "mend the row, or pass --skip-bad-rows");
  }
  return tools.empty() ? Json(nullptr) : tools;
}

/// The row's "chat_template_kwargs", as {"enable_thinking": false}; null where there are none.
Json template_variables_of(const Json& row, std::string_view where) {
  const auto found = row.find("chat_template_kwargs");
  if (found == row.end() || found->is_null()) return nullptr;
  if (!found->is_object()) {
    throw input_error(where, fmt::format("\"chat_template_kwargs\" is {}", found->type_name()),
                      "expected an object", "mend the row, or pass --skip-bad-rows");
  }
  for (const char* own : {"messages", "tools", "add_generation_prompt"}) {
    if (!found->contains(own)) continue;
    throw input_error(where, fmt::format("\"chat_template_kwargs\" sets \"{}\"", own),
                      "expected further variables of the template alone",
                      "take it out, or pass --skip-bad-rows");
  }
  return *found;
}

/// The row's own "system" text, which some data sets keep beside the turns; empty if there is none.
std::string system_of(const Json& row, std::string_view where) {
  const auto found = row.find("system");
  if (found == row.end() || found->is_null()) return {};
  return string_of(*found, "system", where);
}

Json turn(const char* role, std::string text) {
  return {{"role", role}, {"content", std::move(text)}};
}

void add_system(Conversation& chat, const Json& row, std::string_view where) {
  std::string system = system_of(row, where);
  if (system.empty()) return;
  if (chat.messages[0]["role"] == "system") {
    throw input_error(where, "a \"system\" text and a system turn", "expected one of them",
                      "mend the row, or pass --skip-bad-rows");
  }
  chat.messages.insert(chat.messages.begin(), turn("system", std::move(system)));
}

/// What training by preference has: to learn all of it would be to learn the worse answer too.
void refuse_preferences(const Json& row, std::string_view where) {
  const bool pair = row.contains("chosen") && row.contains("rejected");
  const bool labelled =
      row.contains("completion") && row.contains("label") && row["label"].is_boolean();
  if (!pair && !labelled) return;
  throw input_error(
      where,
      pair ? "a row of preferences (\"chosen\" and \"rejected\")"
           : "a row of preferences (a \"completion\" with a true or false \"label\")",
      "expected rows with the wanted answer alone: wgrad trains by examples, not by preferences",
      "keep the better answer as \"messages\" or \"prompt\" and \"completion\", or pass "
      "--skip-bad-rows");
}

PlainText plain_text(std::string text, size_t completion_begin, bool is_completion,
                     std::string_view where) {
  if (text.empty()) {
    throw input_error(where, "the row's text is empty", "expected some text",
                      "leave such rows out, or pass --skip-bad-rows");
  }
  return {std::move(text), completion_begin, is_completion};
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
    chat.extra = template_variables_of(row, where);
    parsed.conversation = std::move(chat);
    return parsed;
  }
  const std::string& question = string_of(prompt, "prompt", where);
  const std::string& answer = string_of(completion, "completion", where);
  if (style == PromptStyle::kChat) {
    parsed.conversation =
        Conversation{.messages = Json::array({turn("user", question), turn("assistant", answer)})};
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
  if (row.contains("history") && !row["history"].empty()) {
    throw input_error(where, "an instruction with a \"history\"", "expected one question a row",
                      "write the turns as \"messages\", or pass --skip-bad-rows");
  }
  ParsedRow parsed;
  if (has_template) {
    const std::string user = input.empty() ? instruction : instruction + "\n\n" + input;
    Conversation chat{.messages = Json::array({turn("user", user), turn("assistant", output)})};
    add_system(chat, row, where);
    parsed.conversation = std::move(chat);
    return parsed;
  }
  if (!system_of(row, where).empty()) {
    throw input_error(where, "an instruction with a \"system\" text",
                      "the model has no chat template to show it in",
                      "put the text into the instruction, or pass --skip-bad-rows");
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
  refuse_preferences(row, where);
  ParsedRow parsed;
  if (row.contains("messages") || row.contains("conversations")) {
    Conversation chat;
    chat.messages = row.contains("messages") ? messages_of(row["messages"], "messages", where)
                                             : sharegpt_messages(row["conversations"], where);
    chat.tools = tools_of(row, where);
    chat.extra = template_variables_of(row, where);
    add_system(chat, row, where);
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
