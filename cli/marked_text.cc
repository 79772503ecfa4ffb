#include "marked_text.h"

#include <fmt/format.h>

#include "base/counted.h"
#include "data/model_text.h"

namespace wgrad::cli {
namespace {

void append_visibly(std::string& text, std::string_view more) {
  for (size_t i = 0; i < more.size(); ++i) {
    const auto byte = static_cast<unsigned char>(more[i]);
    const bool eight_bit_control =
        byte == 0xc2 && i + 1 < more.size() && static_cast<unsigned char>(more[i + 1]) < 0xa0;
    if (eight_bit_control) {
      text += "\ufffd";
      ++i;
    } else if ((byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t') {
      text += more[i];
    } else {  // U+2400 + byte; U+2421 for 0x7f
      text += "\xe2\x90";
      text += static_cast<char>(byte == 0x7f ? 0xa1 : 0x80 + byte);
    }
  }
}

}  // namespace

std::string marked_text(const data::Row& row, const text::Tokenizer& tokenizer,
                        const Colours& colours) {
  const std::string_view open = colours.on() ? colours.green() : "«";
  const std::string_view close = colours.on() ? colours.reset() : "»";
  text::StreamDecoder decoder(tokenizer, /*skip_special_tokens=*/false);
  std::string text;
  bool inside = false;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    const bool counted = row.counted[i] != 0;
    if (counted != inside) text += counted ? open : close;
    inside = counted;
    append_visibly(text, decoder.push(row.ids[i]));
  }
  append_visibly(text, decoder.finish());
  if (inside) text += close;
  return text;
}

data::Summary show_rows(const std::string& model, const data::Files& files,
                        const data::EncodeOptions& options, const Colours& colours) {
  const text::TextAssets assets = data::load_model_text(model);
  const data::Summary summary = data::for_each_row(files, assets, options, [&](data::Row&& row) {
    const std::string name = files.size() > 1 ? row.where : fmt::format("row {}", row.number);
    fmt::print("{}--- {}: {}, {} counted{}\n{}\n", colours.dim(), name,
               counted(row.tokens(), "token"), row.counted_tokens(), colours.reset(),
               marked_text(row, assets.tokenizer, colours));
  });
  for (const std::string& text : summary.warnings()) fmt::print(stderr, "warning: {}\n", text);
  return summary;
}

}  // namespace wgrad::cli
