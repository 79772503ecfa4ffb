#pragma once

#include <string>

#include "data/dataset.h"
#include "terminal.h"

namespace wgrad::cli {

/// A row as text, the counted part in colour, or between « and » where there is no colour.
std::string marked_text(const data::Row& row, const text::Tokenizer& tokenizer,
                        const Colours& colours);

/// Prints rows of a file that way to standard output.
void show_rows(const std::string& model, const std::string& path,
               const data::EncodeOptions& options);

}  // namespace wgrad::cli
