#pragma once

#include <string>

#include "data/dataset.h"
#include "terminal.h"

namespace wgrad::cli {

/// A row as text, the counted part in colour, or between « and » where there is no colour. Control
/// characters, which a terminal would obey, are shown as the pictures that Unicode has for them.
std::string marked_text(const data::Row& row, const text::Tokenizer& tokenizer,
                        const Colours& colours);

/// Prints rows of files that way to standard output, and their warnings to standard error.
data::Summary show_rows(const std::string& model, const data::Files& files,
                        const data::EncodeOptions& options, const Colours& colours);

}  // namespace wgrad::cli
