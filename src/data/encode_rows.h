#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "io/json_lines.h"

namespace wgrad::data {

/// A row as it was read, and what became of it.
struct EncodedRow {
  nlohmann::ordered_json json;
  Row row;
  std::exception_ptr error;      ///< of reading or of encoding; then `row` is empty
  bool beside_template = false;  ///< prompt and completion as they are; the model has a template
};

/// Reads rows in the files' order and encodes a chunk of them at a time on all processors. What
/// it holds is bounded: a chunk ends after some rows a thread or some MiB of text.
class RowEncoder {
 public:
  RowEncoder(Files files, const text::TextAssets& assets, const EncodeOptions& options);

  /// The next rows, at most `most`; none at the end, which is also at a row that is too long unless
  /// bad rows are skipped.
  std::vector<EncodedRow> next(int64_t most);

 private:
  /// False at the end of the last file.
  bool read(EncodedRow& row);
  void encode(EncodedRow& row) const;
  void encode_all(std::vector<EncodedRow>& rows) const;

  Files files_;
  size_t opened_ = 0;
  int64_t read_ = 0;                    ///< rows, bad ones too
  std::optional<io::JsonLines> lines_;  ///< of the last opened file
  const text::TextAssets& assets_;
  const EncodeOptions& options_;
  size_t threads_;
};

}  // namespace wgrad::data
