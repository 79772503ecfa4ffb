#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct wgrad_template;

namespace wgrad::text {

/// A template's variables for special tokens, as ("bos_token", "<s>"). One that the tokenizer does
/// not have is left out: a template may ask whether it is defined.
using SpecialTokenTexts = std::vector<std::pair<std::string, std::string>>;

/// What strftime_now of a template takes for now: seconds since 1970 as a clock on the wall here
/// shows them.
int64_t local_clock();

/// Owns a compiled chat template and renders it as transformers does. Its render functions may be
/// called from several threads at once.
///
/// A template is untrusted: what it may use of memory, time and recursion is bounded, and so is
/// what a failing one costs (its thread's memory, at most the bound, stays taken).
class ChatTemplate {
 public:
  /// Throws an input error that begins with `where` and gives the line when it does not parse.
  ChatTemplate(std::string source, SpecialTokenTexts special_tokens,
               std::string where = "chat template");
  ChatTemplate(std::string source, std::string bos_token, std::string eos_token);

  /// `messages` is an array of objects. `tools` is null or an array, `extra` null or an object of
  /// further variables (as {"enable_thinking": false}). The order of keys is kept and matters:
  /// templates print tools as JSON.
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt) const;
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                     const nlohmann::ordered_json& tools) const;
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                     const nlohmann::ordered_json& tools,
                     const nlohmann::ordered_json& extra) const;

  const std::string& source() const { return source_; }
  const SpecialTokenTexts& special_tokens() const { return special_tokens_; }
  /// A template of the model for conversations with tools; used in place of this one for those.
  void set_tool_template(ChatTemplate tool_template);
  /// The date that a template may print. It is taken once, when the template is made, so that all
  /// rows of a run agree.
  int64_t now() const { return now_; }
  void set_now(int64_t local_seconds);

 private:
  struct Release {
    void operator()(wgrad_template* handle) const;
  };

  std::unique_ptr<wgrad_template, Release> handle_;
  std::unique_ptr<ChatTemplate> tool_template_;
  std::string source_;
  SpecialTokenTexts special_tokens_;
  std::string where_;
  int64_t now_;
};

}  // namespace wgrad::text
