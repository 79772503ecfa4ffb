#pragma once

#include <functional>

#include "data/dataset.h"
#include "train/inference.h"

namespace wgrad::train {

struct RowLoss {
  int64_t row = 0;  ///< its number among the rows, from 1, as `wgrad data` has it
  double loss = 0;  ///< mean over the counted tokens; 0 where nothing counts
  int64_t tokens = 0;
};

struct EvalResult {
  double loss = 0, perplexity = 0;
  int64_t tokens = 0, rows = 0;  ///< that count in the loss
  data::Summary summary;
};

/// The loss of a model on files, a few rows at a time, never a whole file in memory.
EvalResult evaluate_files(LoadedModel& loaded, const data::Files& files,
                          data::EncodeOptions options,
                          const std::function<void(const RowLoss&)>& on_row);

}  // namespace wgrad::train
