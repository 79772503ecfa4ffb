#include "data/encode.h"

#include <fmt/format.h>

#include "data/chat_spans.h"

namespace wgrad::data {
namespace {

Row encode_chat(const Conversation& chat, const text::TextAssets& assets, TrainOn train_on,
                std::string_view where) {
  RenderedChat rendered;
  if (train_on == TrainOn::kAll) {
    rendered.text = render_text(chat, assets, where);
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

/// Tokens that the tokenizer adds to the text come from nowhere in it.
bool is_added(std::pair<size_t, size_t> offsets) { return offsets.second == 0; }

/// The text itself begins with the BOS that the tokenizer puts before it.
bool has_second_bos(const text::Encoding& encoding, const text::TextAssets& assets) {
  return assets.bos_id && encoding.ids.size() > 1 && encoding.ids[0] == *assets.bos_id &&
         encoding.ids[1] == *assets.bos_id && is_added(encoding.offsets[0]) &&
         !is_added(encoding.offsets[1]);
}

Row encode_plain(const PlainText& plain, const text::TextAssets& assets, TrainOn train_on,
                 std::string_view where) {
  if (!assets.eos_id) {
    throw input_error(where, "the model names no end-of-sequence token",
                      "expected \"eos_token\" in its tokenizer_config.json",
                      "add it, so that the model can learn where a text ends");
  }
  text::Encoding encoding = assets.tokenizer.encode(plain.text, true);
  if (has_second_bos(encoding, assets)) {
    encoding.ids.erase(encoding.ids.begin());
    encoding.offsets.erase(encoding.offsets.begin());
  }
  const bool everything = train_on == TrainOn::kAll || !plain.is_completion;
  Row row;
  row.counted.resize(encoding.ids.size());
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const bool in_completion =
        !is_added(encoding.offsets[i]) && encoding.offsets[i].first >= plain.completion_begin;
    row.counted[i] = everything ? i > 0 : in_completion;
  }
  row.ids = std::move(encoding.ids);
  if (row.ids.empty() || row.ids.back() != *assets.eos_id) {
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
