#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "wgrad/train.h"

namespace wgrad::cli {

/// Rows, tokens, what counts, and how long the rows are: lines of text that end with a newline.
std::string describe(const DataSummary& summary);

nlohmann::ordered_json to_json(const DataSummary& summary);

}  // namespace wgrad::cli
