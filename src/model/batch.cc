#include "model/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/loss.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

void append_row(Batch& batch, const Row& row, uint32_t index, int64_t vocab_size) {
  if (row.ids.empty()) {
    throw input_error(fmt::format("row {} of the batch", index), "no tokens", "at least one");
  }
  if (!row.labels.empty() && row.labels.size() != row.ids.size()) {
    throw input_error(fmt::format("row {} of the batch", index),
                      fmt::format("{} ids and {} labels", row.ids.size(), row.labels.size()),
                      "as many labels as ids");
  }
  const auto begin = static_cast<uint32_t>(batch.ids.size());
  const auto length = static_cast<uint32_t>(row.ids.size());
  for (uint32_t t = 0; t < length; ++t) {
    if (row.ids[t] >= vocab_size) {
      throw input_error(fmt::format("row {} of the batch, token {}", index, t),
                        fmt::format("id {}", row.ids[t]),
                        fmt::format("an id below the model's vocabulary of {}", vocab_size),
                        "use the tokenizer that belongs to the model");
    }
    batch.ids.push_back(row.ids[t]);
    batch.positions.push_back(t);
    batch.row_begin.push_back(begin);
    batch.row_end.push_back(begin + length);
    if (t + 1 == length || row.labels.empty()) continue;
    const int32_t target = row.labels[t + 1];
    if (target == ops::kIgnoreLabel) continue;
    if (target < 0 || target >= vocab_size) {
      throw input_error(
          fmt::format("row {} of the batch, token {}", index, t + 1),
          fmt::format("label {}", target),
          fmt::format("-100 or an id below the model's vocabulary of {}", vocab_size));
    }
    batch.counted.push_back(begin + t);
    batch.targets.push_back(target);
    batch.target_row.push_back(index);
  }
  batch.longest_row = std::max(batch.longest_row, length);
}

/// Parts of one tensor begin where a binding may.
constexpr size_t kAlign = 64;

void upload(Context& ctx, Batch& batch) {
  std::vector<uint32_t> all;
  struct Part {
    Tensor* tensor;
    size_t begin, count;
  };
  std::vector<Part> parts;
  const auto add = [&](Tensor& tensor, const std::vector<uint32_t>& values) {
    parts.push_back({&tensor, all.size(), values.size()});
    all.insert(all.end(), values.begin(), values.end());
    all.resize((all.size() + kAlign - 1) / kAlign * kAlign);
  };
  add(batch.device_ids, batch.ids);
  add(batch.device_positions, batch.positions);
  add(batch.device_row_begin, batch.row_begin);
  add(batch.device_row_end, batch.row_end);
  if (!batch.counted.empty()) add(batch.device_counted, batch.counted);
  const Tensor memory = ctx.make<uint32_t>({static_cast<int64_t>(all.size())}, DType::kU32, all,
                                           "batch/ids, positions and rows");
  for (const Part& part : parts) {
    *part.tensor = memory.flat(static_cast<int64_t>(part.begin), static_cast<int64_t>(part.count));
  }
  if (!batch.counted.empty()) {
    batch.device_targets =
        ctx.make<int32_t>({batch.counted_tokens()}, DType::kI32, batch.targets, "batch/targets");
  }
}

}  // namespace

Batch make_batch(Context& ctx, std::span<const Row> rows, int64_t vocab_size) {
  Batch batch;
  if (rows.empty()) throw input_error("batch", "no rows", "at least one");
  for (uint32_t i = 0; i < rows.size(); ++i) append_row(batch, rows[i], i, vocab_size);
  upload(ctx, batch);
  return batch;
}

Batch continue_row(Context& ctx, std::span<const uint32_t> ids, uint32_t begin,
                   int64_t vocab_size) {
  Batch batch;
  append_row(batch, {.ids = ids, .labels = {}}, 0, vocab_size);
  // row_begin stays 0: the cache holds this row alone.
  for (uint32_t& position : batch.positions) position += begin;
  for (uint32_t& end : batch.row_end) end += begin;
  batch.longest_row += begin;
  upload(ctx, batch);
  return batch;
}

}  // namespace wgrad::model
