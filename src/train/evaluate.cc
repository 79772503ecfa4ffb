#include "train/evaluate.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "train/row_batch.h"

namespace wgrad::train {
namespace {

/// Tokens that one pass takes; a longer row goes alone.
constexpr int64_t kBatchTokens = 4096;

class Evaluator {
 public:
  Evaluator(LoadedModel& loaded, const std::function<void(const RowLoss&)>& on_row)
      : loaded_(loaded),
        on_row_(on_row),
        decoder_(*loaded.ctx, loaded.model, loaded.adapter_or_null(), {}) {}

  void add(data::Row&& row) {
    const int64_t most = loaded_.model.config.max_positions;
    if (row.tokens() > most) {
      throw input_error(row.where, fmt::format("the row has {} tokens", row.tokens()),
                        fmt::format("at most the {} positions of the model", most),
                        fmt::format("give --max-seq-len {} or less", most));
    }
    if (!rows_.empty() && tokens_ + row.tokens() > kBatchTokens) flush();
    tokens_ += row.tokens();
    rows_.push_back(std::move(row));
  }

  void flush() {
    if (rows_.empty()) return;
    const model::Batch batch = make_batch(*loaded_.ctx, rows_, loaded_.model.config.vocab_size);
    std::vector<RowLoss> sums(rows_.size());
    if (const Tensor losses = decoder_.losses(batch)) {
      const std::vector<float> values = loaded_.ctx->read<float>(losses);
      for (size_t i = 0; i < values.size(); ++i) {
        RowLoss& sum = sums[batch.target_row[i]];
        sum.loss += values[i];
        ++sum.tokens;
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      RowLoss& sum = sums[i];
      loss_sum_ += sum.loss;
      counted_ += sum.tokens;
      sum.row = rows_[i].number;
      if (sum.tokens > 0) {
        sum.loss /= static_cast<double>(sum.tokens);
        ++counted_rows_;
      }
      on_row_(sum);
    }
    rows_.clear();
    tokens_ = 0;
  }

  EvalResult result() const {
    EvalResult r;
    r.tokens = counted_;
    r.rows = counted_rows_;
    r.loss = counted_ > 0 ? loss_sum_ / static_cast<double>(counted_) : 0.0;
    r.perplexity = std::exp(r.loss);
    return r;
  }

 private:
  LoadedModel& loaded_;
  const std::function<void(const RowLoss&)>& on_row_;
  model::Decoder decoder_;
  MicroBatch rows_;
  int64_t tokens_ = 0, counted_ = 0, counted_rows_ = 0;
  double loss_sum_ = 0;
};

}  // namespace

EvalResult evaluate_files(LoadedModel& loaded, const data::Files& files,
                          data::EncodeOptions options,
                          const std::function<void(const RowLoss&)>& on_row) {
  Evaluator evaluator(loaded, on_row);
  options.vocab_size = loaded.model.config.vocab_size;
  const data::Summary summary = data::for_each_row(
      files, loaded.text, options, [&](data::Row&& row) { evaluator.add(std::move(row)); });
  evaluator.flush();
  EvalResult result = evaluator.result();
  result.summary = summary;
  if (result.tokens == 0) {
    throw input_error(data::name_of(files), "nothing in it counts in the loss",
                      "expected rows with an answer (an assistant turn, a completion or a text)",
                      "see `wgrad data` for what counts");
  }
  return result;
}

}  // namespace wgrad::train
