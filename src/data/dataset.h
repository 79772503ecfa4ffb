#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/data_files.h"
#include "data/row.h"
#include "data/row_store.h"
#include "data/summary.h"
#include "text/text_assets.h"
#include "wgrad/train.h"

namespace wgrad::data {

struct EncodeOptions {
  int64_t max_seq_len = 0;  ///< 0: no cut
  int64_t model_limit = 0;  ///< positions of the model, no row may be longer; 0: unknown
  int64_t vocab_size = 0;   ///< of the model: a row with another id is bad; 0: unknown
  PromptStyle prompt_style = PromptStyle::kRaw;
  TrainOn train_on = TrainOn::kAssistant;
  bool skip_bad_rows = false;
  int64_t limit = 0;            ///< rows read at most; 0: all
  bool keep_uncounted = false;  ///< deliver rows with nothing to count too (`wgrad data`)
};

/// Reads the files row by row, renders, tokenizes and masks, and hands each row on. A bad row
/// throws wgrad::Error kInput with file, line, column.
Summary for_each_row(const Files& files, const text::TextAssets& assets,
                     const EncodeOptions& options, const std::function<void(Row&&)>& take);

struct Dataset {
  std::string name;  ///< of its files
  RowStore rows;
  Summary summary;
  uint64_t fingerprint = 0;  ///< of all ids and counted flags: a resumed run must have the same
};
/// Encodes all rows. Throws where the files have no row, or none with anything to count.
Dataset load_dataset(const Files& files, const text::TextAssets& assets,
                     const EncodeOptions& options);

}  // namespace wgrad::data
