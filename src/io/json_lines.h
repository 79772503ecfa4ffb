#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace wgrad::io {

/// Reads rows of JSON one at a time, holding one row in memory: a `.jsonl` file (a row a line,
/// blank lines skipped, a byte order mark and CRLF accepted), "-" for standard input, or a `.json`
/// file that is one array of rows; each may be packed by gzip. Owns the open file.
class JsonLines {
 public:
  static constexpr std::size_t kMaxRowBytes = std::size_t{256} << 20;

  /// A missing file is an input error. `max_row_bytes` bounds the memory that a row may take.
  static JsonLines open(const std::filesystem::path& path,
                        std::size_t max_row_bytes = kMaxRowBytes);
  JsonLines(JsonLines&&) noexcept;
  JsonLines& operator=(JsonLines&&) noexcept;
  ~JsonLines();

  /// Reads the next row, its keys in the file's order; false at the end. A bad row is an input
  /// error "FILE:LINE:COLUMN: ..."; the call after that goes on with the row that follows, where
  /// one can be found.
  bool next(nlohmann::ordered_json& row);

  /// Where the last row (or the last error) began: "FILE:LINE", of an array "FILE, item NUMBER".
  std::string where() const;
  std::size_t line() const;
  /// After an error: the row was too long, and reading on begins by skipping the rest of it.
  bool within_row() const;
  /// Rows that were read without an error.
  std::size_t rows() const;

 private:
  struct State;
  explicit JsonLines(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace wgrad::io
