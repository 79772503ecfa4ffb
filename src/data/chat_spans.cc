#include "data/chat_spans.h"

#include <fmt/format.h>

#include <optional>

namespace wgrad::data {
namespace {

using Json = nlohmann::ordered_json;

/// Stands for a message's content; private-use characters that no data holds.
const std::string kMark = "\uE8F3wgrad\uE8F4mark\uE8F3";

/// What a message's content is surrounded by in the rendered conversation.
struct Surroundings {
  size_t begin = 0, end = 0;  ///< of the content as rendered
};

class SpanFinder {
 public:
  SpanFinder(const Conversation& chat, const text::TextAssets& assets, std::string_view where)
      : chat_(chat), assets_(assets), where_(where) {
    whole_ = render(chat.messages, false);
  }

  RenderedChat find() {
    RenderedChat rendered;
    const size_t count = chat_.messages.size();
    size_t last_end = 0;
    for (size_t i = chat_.first_counted_message; i < count; ++i) {
      if (chat_.messages[i]["role"] != "assistant") continue;
      const size_t begin = begin_of(i);
      const size_t end = end_of(i, begin);
      if (begin < last_end || end <= begin) {
        refuse(i, "its place in the rendered text overlaps the turn before it");
      }
      last_end = end;
      rendered.counted.push_back({begin, end});
    }
    rendered.text = std::move(whole_);
    return rendered;
  }

 private:
  std::string render(const Json& messages, bool add_generation_prompt) const {
    try {
      return assets_.chat_template->render(messages, add_generation_prompt, chat_.tools);
    } catch (const Error& error) {
      throw input_error(where_, error.what(), {},
                        "mend the row or the template, or pass --skip-bad-rows");
    }
  }

  [[noreturn]] void refuse(size_t message, std::string_view why) const {
    throw input_error(where_, fmt::format("message {}: {}", message, why),
                      "expected the chat template to show where the assistant's turn lies",
                      "train on all tokens (--train-on all), use prompt/completion rows, or pass "
                      "--skip-bad-rows");
  }

  /// The messages before `count`.
  Json before(size_t count) const {
    return Json(chat_.messages.begin(),
                chat_.messages.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// The messages before `count`, the content of `marked` replaced by the mark.
  std::optional<Json> with_mark(size_t count, size_t marked) const {
    Json messages = before(count);
    if (!messages[marked]["content"].is_string()) return std::nullopt;
    messages[marked]["content"] = kMark;
    return messages;
  }

  /// Where the content of `message` lies in the whole, if the text around it does not depend on it.
  std::optional<Surroundings> locate(size_t message) const {
    const std::optional<Json> marked = with_mark(chat_.messages.size(), message);
    if (!marked) return std::nullopt;
    const std::string text = render(*marked, false);
    const size_t mark = text.find(kMark);
    if (mark == std::string::npos || text.find(kMark, mark + 1) != std::string::npos) {
      return std::nullopt;
    }
    const std::string_view head = std::string_view(text).substr(0, mark);
    const std::string_view tail = std::string_view(text).substr(mark + kMark.size());
    if (head.size() + tail.size() > whole_.size() || !whole_.starts_with(head) ||
        !whole_.ends_with(tail)) {
      return std::nullopt;
    }
    return Surroundings{head.size(), whole_.size() - tail.size()};
  }

  size_t begin_of(size_t message) const {
    if (message > 0 || chat_.first_counted_message > 0) {
      const std::string prefix = render(before(message), true);
      if (whole_.starts_with(prefix)) return prefix.size();
    }
    if (message == 0) {
      const std::optional<Surroundings> content = locate(0);
      if (content) return content->begin;
      refuse(message,
             "a conversation that begins with the assistant has no generation prompt here");
    }
    // The text after the content of the message before, as far as the generation prompt's end, is
    // what must follow that content in the whole too.
    const std::optional<Json> marked = with_mark(message, message - 1);
    const std::optional<Surroundings> previous = locate(message - 1);
    if (!marked || !previous) {
      refuse(message, "what is rendered before it changes with what follows");
    }
    const std::string text = render(*marked, true);
    const size_t mark = text.find(kMark);
    if (mark == std::string::npos) refuse(message, "the template leaves out the message before it");
    const std::string_view prompt = std::string_view(text).substr(mark + kMark.size());
    if (!std::string_view(whole_).substr(previous->end).starts_with(prompt)) {
      refuse(message, "its generation prompt does not stand before it in the conversation");
    }
    return previous->end + prompt.size();
  }

  /// Past the first end-of-turn token after the turn's content and before the next message's.
  size_t end_of(size_t message, size_t begin) const {
    size_t from = begin;
    if (const std::optional<Surroundings> content = locate(message)) {
      from = std::max(from, content->end);
    }
    size_t limit = whole_.size();
    if (message + 1 < chat_.messages.size()) {
      if (const std::optional<Surroundings> next = locate(message + 1)) limit = next->begin;
    }
    const std::string_view region = std::string_view(whole_).substr(from, limit - from);
    size_t end = first_token(region, /*any_special=*/false);
    if (end == std::string::npos) end = first_token(region, /*any_special=*/true);
    if (end == std::string::npos) {
      refuse(message, "no end-of-turn token follows it, so the model would not learn to stop");
    }
    return from + end;
  }

  /// Past the earliest stop token (or any special token) in `region`; of those that begin at one
  /// place the longest.
  size_t first_token(std::string_view region, bool any_special) const {
    size_t best = std::string::npos, best_length = 0;
    for (const text::AddedToken& token : assets_.tokenizer.added_tokens()) {
      if (token.content.empty()) continue;
      if (any_special ? !token.special : !assets_.is_stop(token.id)) continue;
      const size_t at = region.find(token.content);
      if (at == std::string::npos) continue;
      if (at < best || (at == best && token.content.size() > best_length)) {
        best = at;
        best_length = token.content.size();
      }
    }
    return best == std::string::npos ? best : best + best_length;
  }

  const Conversation& chat_;
  const text::TextAssets& assets_;
  std::string_view where_;
  std::string whole_;
};

}  // namespace

RenderedChat render_chat(const Conversation& chat, const text::TextAssets& assets,
                         std::string_view where) {
  if (!assets.chat_template) {
    throw input_error(where, "the model has no chat template", "a chat row needs one",
                      "use prompt/completion or text rows, or put a chat_template.jinja into the "
                      "model's folder");
  }
  return SpanFinder(chat, assets, where).find();
}

}  // namespace wgrad::data
