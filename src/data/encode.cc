#include "data/encode.h"

#include <fmt/format.h>

#include "data/chat_spans.h"

namespace wgrad::data {
namespace {

/// A conversation of which every token counts needs no spans.
std::string render_all(const Conversation& chat, const text::TextAssets& assets,
                       std::string_view where) {
  Conversation uncounted = chat;
  uncounted.first_counted_message = chat.messages.size();
  return render_chat(uncounted, assets, where).text;
}

Row encode_chat(const Conversation& chat, const text::TextAssets& assets, TrainOn train_on,
                std::string_view where) {
  RenderedChat rendered;
  if (train_on == TrainOn::kAll) {
    rendered.text = render_all(chat, assets, where);
    rendered.counted.push_back({0, rendered.text.size()});
  } else {
    rendered = render_chat(chat, assets, where);
  }
  text::Encoding encoding = assets.tokenizer.encode(rendered.text, false);
  Row row;
  row.counted.resize(encoding.ids.size());
  size_t span = 0;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const size_t begin = encoding.offsets[i].first;
    while (span < rendered.counted.size() && begin >= rendered.counted[span].end) ++span;
    row.counted[i] = span < rendered.counted.size() && begin >= rendered.counted[span].begin;
  }
  if (train_on == TrainOn::kAll && !row.counted.empty()) row.counted[0] = 0;
  row.ids = std::move(encoding.ids);
  return row;
}

Row encode_plain(const PlainText& plain, const text::TextAssets& assets, TrainOn train_on,
                 std::string_view where) {
  if (!assets.eos_id) {
    throw input_error(where, "the model names no end-of-sequence token",
                      "expected \"eos_token\" in its tokenizer_config.json",
                      "add it, so that the model can learn where a text ends");
  }
  text::Encoding encoding = assets.tokenizer.encode(plain.text, true);
  const bool everything = train_on == TrainOn::kAll || !plain.is_completion;
  Row row;
  row.counted.resize(encoding.ids.size());
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    const bool in_text = begin < end;
    row.counted[i] = everything ? i > 0 : in_text && begin >= plain.completion_begin;
  }
  // A tokenizer that closes its texts itself gave EOS an empty range.
  const bool closed = !encoding.ids.empty() && encoding.ids.back() == *assets.eos_id &&
                      encoding.offsets.back().first == encoding.offsets.back().second;
  row.ids = std::move(encoding.ids);
  if (!closed) {
    row.ids.push_back(*assets.eos_id);
    row.counted.push_back(0);
  }
  row.counted.back() = row.ids.size() > 1;
  return row;
}

}  // namespace

Row encode_row(const ParsedRow& row, const text::TextAssets& assets, TrainOn train_on,
               std::string_view where) {
  return row.conversation ? encode_chat(*row.conversation, assets, train_on, where)
                          : encode_plain(*row.plain, assets, train_on, where);
}

}  // namespace wgrad::data
