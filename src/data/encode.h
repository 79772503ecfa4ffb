#pragma once

#include <string_view>

#include "data/dataset.h"
#include "data/format.h"

namespace wgrad::data {

/// Tokens and counted flags of one row, not yet cut.
Row encode_row(const ParsedRow& row, const text::TextAssets& assets, TrainOn train_on,
               std::string_view where);

}  // namespace wgrad::data
