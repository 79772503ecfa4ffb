#include "marked_text.h"

#include <fmt/format.h>

#include "data/model_text.h"

namespace wgrad::cli {

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
    text += decoder.push(row.ids[i]);
  }
  text += decoder.finish();
  if (inside) text += close;
  return text;
}

void show_rows(const std::string& model, const std::string& path,
               const data::EncodeOptions& options) {
  const text::TextAssets assets = data::load_model_text(model);
  const Colours colours(stdout_is_terminal());
  const data::Summary summary = data::for_each_row(path, assets, options, [&](data::Row&& row) {
    fmt::print("{}--- row {}: {} tokens, {} counted{}\n{}\n", colours.dim(), row.line, row.tokens(),
               row.counted_tokens(), colours.reset(), marked_text(row, assets.tokenizer, colours));
  });
  for (const std::string& text : summary.warnings()) fmt::print(stderr, "warning: {}\n", text);
}

}  // namespace wgrad::cli
