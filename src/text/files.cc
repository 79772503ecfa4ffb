#include "text/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "base/json_marks.h"
#include "base/lfs_pointer.h"
#include "wgrad/error.h"

namespace wgrad::text {
namespace {

constexpr uintmax_t kLargest = uintmax_t{512} << 20;
constexpr size_t kDeepest = 100;
constexpr size_t kMostKeys = 16384;
constexpr size_t kMostValues = 4000000;

std::string place(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t start = before.rfind('\n');
  const size_t column = start == std::string_view::npos ? before.size() : before.size() - start - 1;
  return fmt::format("line {}, column {}", line, std::max<size_t>(column, 1));
}

[[noreturn]] void refuse_structure(const std::filesystem::path& path, const std::string& seen) {
  throw input_error(path.string(), seen, "expected a JSON file as transformers writes it",
                    "download the file again");
}

/// Refuses nesting that later recursion could not follow, and objects whose ordered keys would take
/// long to look up.
void check_structure(std::string_view text, const std::filesystem::path& path) {
  std::vector<size_t> keys_of_open;
  size_t separators = 0;
  for_each_json_mark(text, [&](char c, std::size_t) {
    if (c == '{' || c == '[') {
      keys_of_open.push_back(0);
      if (keys_of_open.size() > kDeepest) {
        refuse_structure(path, fmt::format("is nested deeper than {} levels", kDeepest));
      }
    } else if ((c == '}' || c == ']') && !keys_of_open.empty()) {
      keys_of_open.pop_back();
    } else if (c == ':' && !keys_of_open.empty() && ++keys_of_open.back() > kMostKeys) {
      refuse_structure(path, fmt::format("has more than {} keys in one object", kMostKeys));
    } else if (c == ',' && ++separators > kMostValues) {
      refuse_structure(path, fmt::format("has more than {} values", kMostValues));
    }
  });
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() !=
         std::filesystem::file_type::not_found;
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    throw input_error(path.string(), "cannot be read (" + error.message() + ")", {},
                      "check the path and its permissions");
  }
  if (size > kLargest) {
    throw input_error(path.string(), fmt::format("is {} bytes long", size),
                      "expected a text file of at most 512 MiB", "download the file again");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file || file.gcount() != static_cast<std::streamsize>(size)) {
    throw input_error(path.string(), "cannot be read to its end", {},
                      "check its permissions and the disk");
  }
  refuse_lfs_pointer(path.string(), text);
  return text;
}

nlohmann::ordered_json read_json_object(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  check_structure(text, path);
  nlohmann::ordered_json json;
  try {
    json = nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::ordered_json::parse_error& error) {
    throw input_error(path.string() + ", " + place(text, error.byte), "is not valid JSON", {},
                      "download the file again or mend it there");
  }
  if (!json.is_object()) {
    throw input_error(path.string(), fmt::format("holds a JSON {}", json.type_name()),
                      "expected an object", "download the file again");
  }
  return json;
}

}  // namespace wgrad::text
