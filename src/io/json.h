#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace wgrad::io {

inline constexpr std::size_t kMaxJsonDepth = 256;
inline constexpr std::size_t kMaxJsonFileBytes = std::size_t{256} << 20;

/// How a JSON text is read and where its errors point to.
struct JsonOptions {
  std::string_view where;        ///< the file, for error texts
  std::size_t first_line = 1;    ///< the line of the file on which the text begins
  std::size_t first_column = 1;  ///< the byte of that line at which it begins
  bool refuse_duplicate_keys = false;
  std::size_t max_depth = kMaxJsonDepth;
};

/// Parses JSON text. What is wrong (not UTF-8, nested too deeply, a syntax error) is an input error
/// "FILE:LINE:COLUMN: ..." with the column in bytes from 1.
nlohmann::json parse_json(std::string_view text, const JsonOptions& options);

/// The same with the order of the keys kept, for rows whose objects a chat template prints. An
/// object of very many keys is an input error.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonOptions& options);

/// Reads and parses a JSON file (a UTF-8 byte order mark is skipped); missing, too large or broken
/// files are input errors.
nlohmann::json read_json_file(const std::filesystem::path& path);

/// Reads a whole text file of at most `max_bytes`; a missing or larger file is an input error.
std::string read_text_file(const std::filesystem::path& path,
                           std::size_t max_bytes = kMaxJsonFileBytes);

/// The offset of the first byte that is not valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace wgrad::io
