#include "text/chat_template.h"

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "text/rust_interface.h"
#include "wgrad/error.h"

namespace wgrad::text {
namespace {

using nlohmann::ordered_json;

/// Copying and writing JSON recurse.
constexpr int kDeepest = 100;

void check_depth(const ordered_json& value, const std::string& where, int depth = 0) {
  if (!value.is_structured()) return;
  if (depth == kDeepest) {
    throw input_error(where, "a message or tool is nested more than 100 deep", {},
                      "flatten the data");
  }
  for (const ordered_json& item : value) check_depth(item, where, depth + 1);
}

/// As transformers prepares a message: keys without a value are dropped, and the names under which
/// reasoning is passed are filled from each other.
ordered_json prepare_message(const ordered_json& message) {
  ordered_json kept = ordered_json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto reasoning = kept.find(name);
    if (reasoning == kept.end()) continue;
    const ordered_json text = *reasoning;
    ordered_json out = {{"thinking", text}};
    for (const auto& [key, value] : kept.items()) out[key] = value;
    out["reasoning_content"] = text;
    return out;
  }
  return kept;
}

ordered_json prepare(const ordered_json& messages, const std::string& where) {
  if (!messages.is_array() || messages.empty()) {
    throw input_error(where, "there are no messages to render",
                      "expected an array of objects with role and content");
  }
  ordered_json out = ordered_json::array();
  for (const ordered_json& message : messages) {
    if (!message.is_object()) {
      throw input_error(where, std::string("a message is a JSON ") + message.type_name(),
                        "expected an object with role and content");
    }
    out.push_back(prepare_message(message));
  }
  return out;
}

std::string dump(const ordered_json& variables, const std::string& where) {
  try {
    return variables.dump();
  } catch (const ordered_json::type_error&) {
    throw input_error(where, "a message is not UTF-8", {}, "save the data as UTF-8");
  }
}

}  // namespace

int64_t local_clock() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
#ifdef _WIN32
  localtime_s(&local, &now);
#else
  localtime_r(&now, &local);
#endif
  using namespace std::chrono;
  const sys_days day = year_month_day(year(local.tm_year + 1900), month(local.tm_mon + 1),
                                      std::chrono::day(local.tm_mday));
  return duration_cast<seconds>(day.time_since_epoch()).count() + local.tm_hour * 3600 +
         local.tm_min * 60 + local.tm_sec;
}

void ChatTemplate::Release::operator()(wgrad_template* handle) const {
  wgrad_template_free(handle);
}

ChatTemplate::ChatTemplate(std::string source, SpecialTokenTexts special_tokens, std::string where)
    : source_(std::move(source)),
      special_tokens_(std::move(special_tokens)),
      where_(std::move(where)),
      now_(local_clock()) {
  wgrad_template* handle = nullptr;
  wgrad_bytes error{};
  if (wgrad_template_new(bytes(source_), source_.size(), &handle, &error) != 0) {
    throw input_error(where_, "the chat template cannot be read: " + take(error), {},
                      "mend the template, or use --prompt-style raw");
  }
  handle_.reset(handle);
}

ChatTemplate::ChatTemplate(std::string source, std::string bos_token, std::string eos_token)
    : ChatTemplate(std::move(source),
                   {{"bos_token", std::move(bos_token)}, {"eos_token", std::move(eos_token)}}) {}

std::string ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt) const {
  return render(messages, add_generation_prompt, nullptr, nullptr);
}

std::string ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt,
                                 const ordered_json& tools) const {
  return render(messages, add_generation_prompt, tools, nullptr);
}

std::string ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt,
                                 const ordered_json& tools, const ordered_json& extra) const {
  if (tool_template_ && !tools.is_null()) {
    return tool_template_->render(messages, add_generation_prompt, tools, extra);
  }
  for (const ordered_json* value : {&messages, &tools, &extra}) check_depth(*value, where_);
  ordered_json variables = {{"messages", prepare(messages, where_)},
                            {"tools", tools},
                            {"documents", nullptr},
                            {"add_generation_prompt", add_generation_prompt}};
  for (const auto& [name, text] : special_tokens_) variables[name] = text;
  if (extra.is_object()) {
    for (const auto& [name, value] : extra.items()) variables[name] = value;
  }
  const std::string json = dump(variables, where_);
  wgrad_bytes text{};
  wgrad_bytes error{};
  if (wgrad_template_render(handle_.get(), bytes(json), json.size(), now_, &text, &error) != 0) {
    throw input_error(where_, "the chat template failed: " + take(error), {},
                      "change the messages to what the template takes, or mend the template");
  }
  return take(text);
}

void ChatTemplate::set_tool_template(ChatTemplate tool_template) {
  tool_template_ = std::make_unique<ChatTemplate>(std::move(tool_template));
  tool_template_->set_now(now_);
}

void ChatTemplate::set_now(int64_t local_seconds) {
  now_ = local_seconds;
  if (tool_template_) tool_template_->set_now(local_seconds);
}

}  // namespace wgrad::text
