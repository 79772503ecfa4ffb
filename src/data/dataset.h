#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "text/text_assets.h"
#include "wgrad/train.h"

namespace wgrad::data {

/// One training row as tokens. labels[i] = counted[i] ? ids[i] : -100; the shift by one happens in
/// the loss, so counted[0] never adds to it.
struct Row {
  std::vector<uint32_t> ids;
  std::vector<uint8_t> counted;  ///< same length
  int64_t line = 0;              ///< line of the file (1-based), or index in a .json array

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  /// Positions whose label counts in the loss: counted[i] for i >= 1.
  int64_t counted_tokens() const;
};

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

/// What happened to rows, for the warnings.
struct Summary {
  int64_t rows = 0, tokens = 0, counted_tokens = 0, longest = 0;
  int64_t cut = 0;              ///< rows cut
  int64_t model_limit = 0;      ///< what they were cut to where that is the model's own limit
  int64_t nothing_left = 0;     ///< rows with nothing to count (after the cut), not among `rows`
  bool kept_uncounted = false;  ///< those were delivered all the same
  int64_t bad = 0;              ///< rows skipped by --skip-bad-rows
  std::string first_bad;        ///< message of the first of them
  std::vector<std::string> warnings() const;
};

/// Reads `path` (.jsonl, .json, "-") row by row, renders, tokenizes and masks, and hands each row
/// on. A bad row throws wgrad::Error kInput with file, line, column.
Summary for_each_row(const std::string& path, const text::TextAssets& assets,
                     const EncodeOptions& options, const std::function<void(Row&&)>& take);

struct Dataset {
  std::string path;
  std::vector<Row> rows;
  Summary summary;
  uint64_t fingerprint = 0;  ///< of all ids and counted flags: a resumed run must have the same
};
/// All rows in memory. Throws where the file has no row, or none with anything to count.
Dataset load_dataset(const std::string& path, const text::TextAssets& assets,
                     const EncodeOptions& options);

/// `data` of a run: a file, or a folder's train.jsonl with valid.jsonl (or .json).
struct DataFiles {
  std::string train, valid;  ///< valid: empty where there is none
};
DataFiles find_data_files(const std::string& path);
/// What to evaluate on: a file, or a folder's valid.jsonl, else its train.jsonl.
std::string find_eval_file(const std::string& path);

}  // namespace wgrad::data
