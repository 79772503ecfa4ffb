#pragma once

#include <span>
#include <vector>

#include "data/dataset.h"
#include "model/batch.h"

namespace wgrad::train {

/// Rows of one micro-batch, borrowed from the data set.
using MicroBatch = std::vector<const data::Row*>;

/// The model's batch of these rows: what does not count gets no label.
model::Batch make_batch(Context& ctx, const MicroBatch& rows, int64_t vocab_size);

}  // namespace wgrad::train
