#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/row.h"
#include "io/file_descriptor.h"

namespace wgrad::data {

/// Rows in four bytes a token. What memory does not hold goes to a temporary file that has no name
/// (in $TMPDIR, else /var/tmp): it is gone with the store or the process. Owns that file.
class RowStore {
 public:
  /// Holds 64 MiB in memory, or the bytes that $WGRAD_ROW_MEMORY says.
  RowStore();
  explicit RowStore(size_t memory_bytes);

  /// Ids are below 2^31.
  void add(const Row& row);

  /// From now on the rows are given as if they ended after so many tokens; 0: whole.
  void cut(int64_t most) { most_ = most; }

  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t tokens(int64_t row) const;
  std::vector<int64_t> lengths() const;
  Row row(int64_t row) const;

 private:
  void spill();

  size_t memory_tokens_;
  int64_t most_ = 0;                    ///< tokens of a row that are given; 0: all
  std::vector<uint64_t> begins_ = {0};  ///< of each row in the tokens of all, and their end
  std::vector<uint32_t> recent_;        ///< id and counted bit of the tokens from `spilled_` on
  uint64_t spilled_ = 0;                ///< tokens in the file
  io::FileDescriptor file_;
};

}  // namespace wgrad::data
