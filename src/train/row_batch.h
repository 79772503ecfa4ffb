#pragma once

#include <vector>

#include "data/row.h"
#include "model/batch.h"

namespace wgrad::train {

/// The rows of one micro-batch.
using MicroBatch = std::vector<data::Row>;

/// The model's batch of these rows: what does not count gets no label.
model::Batch make_batch(Context& ctx, const MicroBatch& rows, int64_t vocab_size);

}  // namespace wgrad::train
