#include "train/row_batch.h"

#include "ops/loss.h"

namespace wgrad::train {

model::Batch make_batch(Context& ctx, const MicroBatch& rows, int64_t vocab_size) {
  std::vector<std::vector<int32_t>> labels;
  std::vector<model::Row> views;
  labels.reserve(rows.size());
  for (const data::Row& row : rows) {
    std::vector<int32_t>& l = labels.emplace_back(row.ids.size(), ops::kIgnoreLabel);
    for (size_t i = 0; i < l.size(); ++i) {
      if (row.counted[i]) l[i] = static_cast<int32_t>(row.ids[i]);
    }
    views.push_back({row.ids, l});
  }
  return model::make_batch(ctx, views, vocab_size);
}

}  // namespace wgrad::train
