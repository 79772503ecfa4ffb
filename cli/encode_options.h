#pragma once

#include <CLI/App.hpp>

#include "data/dataset.h"

namespace wgrad::cli {

/// --max-seq-len, --prompt-style, --train-on and --skip-bad-rows of the commands that read rows.
void add_encode_options(CLI::App& app, data::EncodeOptions& options);

}  // namespace wgrad::cli
