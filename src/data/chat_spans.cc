#include "data/chat_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace wgrad::data {
namespace {

using Json = nlohmann::ordered_json;

/// Stands for a message's content: private-use characters, which no template changes.
constexpr std::string_view kMark = "\uE8F3\uE8F4\uE8F3";

/// Each counted turn renders the messages before it again. That work is bounded in bytes (some
/// seconds); a message costs about as much as this many bytes of text.
constexpr size_t kMessageWork = 512;
constexpr size_t kMostWork = size_t{2} << 30;

/// Where the content of a message lies in the rendered conversation.
struct Place {
  size_t begin = 0, end = 0;
};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// A message may say that it is context alone.
bool counts(const Json& message) {
  return message.value("weight", Json(1)) != 0 && message.value("train", Json(true)) != false;
}

/// The arguments of a tool call where they are a string.
const Json* arguments_of(const Json& call) {
  if (!call.is_object()) return nullptr;
  const auto function = call.find("function");
  const Json& holder = function != call.end() ? *function : call;
  if (!holder.is_object()) return nullptr;
  const auto arguments = holder.find("arguments");
  return arguments != holder.end() && arguments->is_string() ? &*arguments : nullptr;
}

class SpanFinder {
 public:
  SpanFinder(Conversation chat, const text::TextAssets& assets, std::string_view where)
      : chat_(std::move(chat)), assets_(assets), where_(where), mark_(kMark) {
    render_whole();
    check_tool_calls();
    check_arguments();
    while (whole_.find(mark_) != std::string::npos) mark_ += mark_;
  }

  RenderedChat find() {
    RenderedChat rendered;
    size_t last_end = 0;
    const std::vector<size_t> turns = counted_turns();
    check_work(turns.size());
    for (const size_t i : turns) {
      const size_t begin = begin_of(i);
      const size_t end = end_of(i, begin);
      if (begin < last_end) refuse(i, "its place in the rendered text overlaps the turn before it");
      last_end = end;
      rendered.counted.push_back({begin, end});
    }
    rendered.text = std::move(whole_);
    return rendered;
  }

  std::string take_whole() { return std::move(whole_); }

 private:
  std::string try_render(const Json& messages, bool add_generation_prompt) const {
    return assets_.chat_template->render(messages, add_generation_prompt, chat_.tools, chat_.extra);
  }

  std::string render(const Json& messages, bool add_generation_prompt) const {
    try {
      return try_render(messages, add_generation_prompt);
    } catch (const Error& error) {
      throw input_error(where_, error.what(), {},
                        "mend the row or the template, or pass --skip-bad-rows");
    }
  }

  /// What is rendered only to see what the template does; nothing where it refuses.
  std::optional<std::string> probe(const Json& messages, bool add_generation_prompt) const {
    try {
      return try_render(messages, add_generation_prompt);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  /// Tool calls often come with a null content. A template that cannot take it gets the empty text.
  void render_whole() {
    const auto is_null = [](const Json& message) { return message["content"].is_null(); };
    if (std::ranges::any_of(chat_.messages, is_null)) {
      try {
        whole_ = try_render(chat_.messages, false);
        return;
      } catch (const Error&) {
        for (Json& message : chat_.messages) {
          if (is_null(message)) message["content"] = "";
        }
      }
    }
    whole_ = render(chat_.messages, false);
  }

  /// A template that leaves tool calls out would have the model learn to answer nothing instead.
  void check_tool_calls() const {
    Json without = chat_.messages;
    std::optional<size_t> calling;
    for (size_t i = chat_.first_counted_message; i < without.size(); ++i) {
      const auto calls = without[i].find("tool_calls");
      if (calls == without[i].end() || calls->empty()) continue;
      without[i].erase(calls);
      if (!calling) calling = i;
    }
    if (!calling || probe(without, false) != whole_) return;
    throw input_error(where_, fmt::format("message {}: its tool calls are not rendered", *calling),
                      "expected a chat template that shows tool calls",
                      "use a template that does, write the calls as content, or pass "
                      "--skip-bad-rows");
  }

  /// Arguments that are the text of an object become a quoted string in a template that writes them
  /// as JSON, which is not what the model is asked for when it calls.
  void check_arguments() const {
    for (size_t i = chat_.first_counted_message; i < chat_.messages.size(); ++i) {
      const auto calls = chat_.messages[i].find("tool_calls");
      if (calls == chat_.messages[i].end() || !calls->is_array()) continue;
      for (const Json& call : *calls) {
        const Json* arguments = arguments_of(call);
        if (!arguments || !arguments->get_ref<const std::string&>().starts_with('{')) continue;
        if (whole_.find(arguments->dump()) == std::string::npos) continue;
        throw input_error(where_,
                          fmt::format("message {}: a tool call's arguments are a string", i),
                          "expected an object: the chat template writes the string in quotes",
                          "turn the string into the object that it holds, or pass --skip-bad-rows");
      }
    }
  }

  [[noreturn]] void refuse(size_t message, std::string_view why) const {
    throw input_error(where_, fmt::format("message {}: {}", message, why),
                      "expected the chat template to show where the assistant's turn lies",
                      "train on all tokens (--train-on all), use prompt/completion rows, or pass "
                      "--skip-bad-rows");
  }

  std::vector<size_t> counted_turns() const {
    std::vector<size_t> turns;
    for (size_t i = chat_.first_counted_message; i < chat_.messages.size(); ++i) {
      const Json& message = chat_.messages[i];
      if (message.at("role") == "assistant" && counts(message)) turns.push_back(i);
    }
    return turns;
  }

  void check_work(size_t turns) const {
    const size_t messages = chat_.messages.size();
    if (turns <= kMostWork / (messages * kMessageWork + whole_.size())) return;
    throw input_error(
        where_,
        fmt::format("{} messages are too many to find the assistant's {} turns among", messages,
                    turns),
        "expected at most some 2000 messages, fewer where they are long",
        "split the conversation, train on all tokens (--train-on all), or pass --skip-bad-rows");
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
    messages[marked]["content"] = mark_;
    return messages;
  }

  /// Where the content of `message` lies in the whole, if the text around it does not depend on it.
  std::optional<Place> locate(size_t message) const {
    const std::optional<Json> marked = with_mark(chat_.messages.size(), message);
    if (!marked) return std::nullopt;
    const std::optional<std::string> text = probe(*marked, false);
    const size_t mark = text ? text->find(mark_) : std::string::npos;
    if (mark == std::string::npos || text->find(mark_, mark + 1) != std::string::npos) {
      return std::nullopt;
    }
    const std::string_view head = std::string_view(*text).substr(0, mark);
    const std::string_view tail = std::string_view(*text).substr(mark + mark_.size());
    if (head.size() + tail.size() > whole_.size() || !whole_.starts_with(head) ||
        !whole_.ends_with(tail)) {
      return std::nullopt;
    }
    return Place{head.size(), whole_.size() - tail.size()};
  }

  /// What add_generation_prompt adds after one user turn.
  std::string generation_prompt() const {
    const Json question = Json::array({{{"role", "user"}, {"content", mark_}}});
    const std::optional<std::string> without = probe(question, false);
    const std::optional<std::string> with = probe(question, true);
    if (!without || !with || !with->starts_with(*without)) return {};
    return with->substr(without->size());
  }

  /// A conversation that begins with the assistant: nothing before it can be rendered.
  size_t begin_of_first() const {
    const std::string prompt = generation_prompt();
    const size_t at = prompt.empty() ? std::string::npos : whole_.find(prompt);
    if (at != std::string::npos) return at + prompt.size();
    if (const std::optional<Place> content = locate(0)) return content->begin;
    refuse(0, "a conversation that begins with the assistant has no generation prompt here");
  }

  size_t begin_of(size_t message) const {
    if (message == 0) return begin_of_first();
    const std::string prefix = render(before(message), true);
    if (whole_.starts_with(prefix)) return prefix.size();
    const std::optional<Place> previous = locate(message - 1);
    if (!previous) refuse(message, "what is rendered before it changes with what follows");
    if (const std::optional<size_t> begin = after_same_prompt(message, previous->end)) {
      return *begin;
    }
    if (const std::optional<size_t> begin = after_own_prompt(message, previous->end)) return *begin;
    refuse(message, "its generation prompt does not stand before it in the conversation");
  }

  /// The text that the messages before render to after the content of the last of them, as far as
  /// the generation prompt's end, follows that content in the whole too.
  std::optional<size_t> after_same_prompt(size_t message, size_t previous_end) const {
    const std::optional<Json> marked = with_mark(message, message - 1);
    const std::optional<std::string> text = marked ? probe(*marked, true) : std::nullopt;
    const size_t mark = text ? text->find(mark_) : std::string::npos;
    if (mark == std::string::npos) return std::nullopt;
    const std::string_view prompt = std::string_view(*text).substr(mark + mark_.size());
    if (!std::string_view(whole_).substr(previous_end).starts_with(prompt)) return std::nullopt;
    return previous_end + prompt.size();
  }

  /// The generation prompt alone stands between the content of the message before and this one's.
  std::optional<size_t> after_own_prompt(size_t message, size_t previous_end) const {
    const std::string prompt = generation_prompt();
    const std::optional<Place> content = locate(message);
    if (prompt.empty() || !content) return std::nullopt;
    const size_t at = whole_.find(prompt, previous_end);
    if (at == std::string::npos || at + prompt.size() > content->begin) return std::nullopt;
    return at + prompt.size();
  }

  /// Past the first end-of-turn token from `begin` on and before the next message's content.
  size_t end_of(size_t message, size_t begin) {
    const auto stops = [this](const text::AddedToken& token) { return assets_.is_stop(token.id); };
    const std::optional<Place> nearest = first_token(whole_, begin, stops);
    if (nearest && closes_content(message, begin, *nearest)) return nearest->end;
    size_t limit = whole_.size();
    if (message + 1 < chat_.messages.size()) {
      const std::optional<Place> next = locate(message + 1);
      if (next && next->begin >= begin) limit = next->begin;
    }
    const std::string_view whole = std::string_view(whole_).substr(0, limit);
    const std::optional<Place> stop = first_token(whole, begin, stops);
    if (stop && !holds_special(whole.substr(begin, stop->begin - begin))) return stop->end;
    if (!turn_end_) turn_end_ = find_turn_end(message);
    const auto ends_turns = [&](const text::AddedToken& token) {
      return stops(token) || token.content == *turn_end_;
    };
    if (const std::optional<Place> end = first_token(whole, begin, ends_turns)) return end->end;
    // A template may close its last turn in another way than those before it.
    if (const std::optional<Place> content = locate(message)) {
      const size_t from = std::max(begin, content->end);
      if (const std::optional<Place> end = first_special(whole, from)) return end->end;
    }
    refuse(message, "no end-of-turn token follows it, so the model would not learn to stop");
  }

  /// Nothing but the message's own content stands between `begin` and the token, and the token is
  /// not what the next message begins with: it closes this one, without a look at the next.
  bool closes_content(size_t message, size_t begin, const Place& token) const {
    const std::string_view whole = whole_;
    const std::string_view text = whole.substr(begin, token.begin - begin);
    const std::optional<std::string_view> own = trimmed_content(message);
    if (!own || trim(text) != *own || holds_special(text)) return false;
    if (message + 1 == chat_.messages.size()) return true;
    const std::optional<std::string_view> next = trimmed_content(message + 1);
    return next && !next->starts_with(whole.substr(token.begin, token.end - token.begin));
  }

  std::optional<std::string_view> trimmed_content(size_t message) const {
    const Json& content = chat_.messages[message].at("content");
    if (!content.is_string()) return std::nullopt;
    return trim(content.get_ref<const std::string&>());
  }

  /// The special token that the template puts after an assistant's content; it need not be among
  /// the model's stop tokens. Empty if there is none.
  std::string find_turn_end(size_t message) const {
    Json messages = before(message + 1);
    messages[message]["content"] = mark_;
    messages[message].erase("tool_calls");
    const std::optional<std::string> text = probe(messages, false);
    const size_t mark = text ? text->find(mark_) : std::string::npos;
    if (mark == std::string::npos) return {};
    const std::optional<Place> end = first_special(*text, mark);
    return end ? text->substr(end->begin, end->end - end->begin) : std::string();
  }

  bool holds_special(std::string_view text) const {
    return assets_.tokenizer.first_special(text, 0).has_value();
  }

  std::optional<Place> first_special(std::string_view text, size_t from) const {
    const auto place = assets_.tokenizer.first_special(text, from);
    if (!place) return std::nullopt;
    return Place{place->first, place->second};
  }

  /// The first of the wanted tokens that begins at `from` or later; of those that begin at one
  /// place the longest.
  template <typename Wanted>
  std::optional<Place> first_token(std::string_view text, size_t from, const Wanted& wanted) const {
    std::optional<Place> best;
    for (const text::AddedToken& token : assets_.tokenizer.added_tokens()) {
      if (token.content.empty() || !wanted(token)) continue;
      const size_t longest = best ? best->begin + token.content.size() : text.size();
      const size_t at = text.substr(0, longest).find(token.content, from);
      if (at == std::string::npos) continue;
      const Place place{at, at + token.content.size()};
      if (!best || at < best->begin || place.end > best->end) best = place;
    }
    return best;
  }

  Conversation chat_;
  const text::TextAssets& assets_;
  std::string_view where_;
  std::string whole_;
  std::string mark_;  ///< not in `whole_`
  std::optional<std::string> turn_end_;
};

void require_template(const text::TextAssets& assets, std::string_view where) {
  if (assets.chat_template) return;
  throw input_error(where, "the model has no chat template", "a chat row needs one",
                    "use prompt/completion or text rows, or put a chat_template.jinja into the "
                    "model's folder");
}

}  // namespace

RenderedChat render_chat(const Conversation& chat, const text::TextAssets& assets,
                         std::string_view where) {
  require_template(assets, where);
  return SpanFinder(chat, assets, where).find();
}

std::string render_text(const Conversation& chat, const text::TextAssets& assets,
                        std::string_view where) {
  require_template(assets, where);
  return SpanFinder(chat, assets, where).take_whole();
}

}  // namespace wgrad::data
