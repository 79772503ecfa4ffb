#include "io/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json_marks.h"
#include "base/lfs_pointer.h"
#include "io/file_descriptor.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxQuotedBytes = 160;
constexpr std::size_t kMaxOrderedKeys = 4096;
constexpr std::size_t kMaxKeysInAll = 1000000;
constexpr std::size_t kMaxValues = 4000000;

// "FILE:LINE:COLUMN" of a byte of the text.
std::string position(std::string_view text, std::size_t offset, const JsonOptions& options) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto newlines = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t line_start = newlines == 0 ? 0 : before.rfind('\n') + 1;
  const std::size_t column =
      before.size() - line_start + (newlines == 0 ? options.first_column : 1);
  return fmt::format("{}:{}:{}", options.where, options.first_line + newlines, column);
}

// Refuses nesting beyond the limit before anything recursive sees the value, and more values than
// a parsed form of sensible size holds.
void check_structure(std::string_view text, const JsonOptions& options) {
  std::size_t depth = 0;
  std::size_t separators = 0;
  for_each_json_mark(text, [&](char c, std::size_t i) {
    if (c == '{' || c == '[') {
      if (++depth > options.max_depth) {
        throw input_error(position(text, i, options),
                          fmt::format("JSON nested deeper than {} levels", options.max_depth),
                          "flatter data", "look for brackets that are not closed");
      }
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ',' && ++separators > kMaxValues) {
      throw input_error(position(text, i, options),
                        fmt::format("JSON of more than {} values", kMaxValues), "fewer values",
                        "check that this is the right file");
    }
  });
}

// Objects that keep their order look a key up in a line: refuses sizes at which that takes long.
void check_keys(std::string_view text, const JsonOptions& options) {
  std::vector<std::size_t> keys_of_open;
  std::size_t keys = 0;
  for_each_json_mark(text, [&](char c, std::size_t i) {
    if (c == '{') {
      keys_of_open.push_back(0);
    } else if (c == '}' && !keys_of_open.empty()) {
      keys_of_open.pop_back();
    } else if (c == ':' && !keys_of_open.empty()) {
      if (++keys_of_open.back() > kMaxOrderedKeys || ++keys > kMaxKeysInAll) {
        throw input_error(position(text, i, options),
                          fmt::format("more than {} keys in one object, or {} in all",
                                      kMaxOrderedKeys, kMaxKeysInAll),
                          "smaller objects", "split the row");
      }
    }
  });
}

// The part of the parser's message that says what is wrong, without its prefix and not too long.
std::string reason(std::string_view message) {
  const std::size_t column = message.find(", column ");
  const std::size_t colon = message.find(": ", column == std::string_view::npos ? 0 : column);
  if (colon != std::string_view::npos) {
    message.remove_prefix(colon + 2);
  } else if (const std::size_t bracket = message.find("] "); bracket != std::string_view::npos) {
    message.remove_prefix(bracket + 2);
  }
  if (message.size() <= kMaxQuotedBytes) return std::string(message);
  std::size_t end = kMaxQuotedBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;
  return std::string(message.substr(0, end)) + "...";
}

// Goes over JSON without building it and throws on the second key of its kind in one object.
class DuplicateKeys : public nlohmann::json_sax<json> {
 public:
  explicit DuplicateKeys(std::string_view where) : where_(where) {}

  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (open_.back().insert(name).second) return true;
    throw input_error(where_, fmt::format("the key \"{}\" appears twice in one object", name),
                      "each key once", "write the file anew");
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  // The parser that builds the value reports it.
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  std::string_view where_;
  std::vector<std::unordered_set<std::string>> open_;
};

// The length of the UTF-8 sequence at the front of `text`, 0 where there is no valid one.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  std::size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;   // overlong
    if (first == 0xed) high = 0x9f;  // surrogates
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;   // overlong
    if (first == 0xf4) high = 0x8f;  // beyond U+10FFFF
  }
  if (length == 0 || text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = sequence_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

template <typename Json>
static Json parse_checked(std::string_view text, const JsonOptions& options) {
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    throw input_error(position(text, bad, options),
                      fmt::format("byte 0x{:02x} is not valid UTF-8",
                                  static_cast<unsigned>(static_cast<unsigned char>(text[bad]))),
                      "UTF-8 text", "save the file as UTF-8");
  }
  check_structure(text, options);
  if (options.refuse_duplicate_keys) {
    DuplicateKeys keys(options.where);
    json::sax_parse(text.begin(), text.end(), &keys);
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const json::parse_error& error) {
    const std::size_t offset = error.byte > 0 ? error.byte - 1 : 0;
    throw input_error(position(text, offset, options), "not valid JSON: " + reason(error.what()),
                      {}, "correct the JSON there");
  } catch (const json::exception& error) {
    throw input_error(position(text, 0, options), "not valid JSON: " + reason(error.what()), {},
                      "correct the JSON there");
  }
}

json parse_json(std::string_view text, const JsonOptions& options) {
  return parse_checked<json>(text, options);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonOptions& options) {
  check_keys(text, options);
  return parse_checked<nlohmann::ordered_json>(text, options);
}

std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  FileDescriptor file = FileDescriptor::open_plain_file(path);
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (const std::size_t n = file.read_some(buffer)) {
    if (n > max_bytes - text.size()) {
      throw input_error(path.string(), fmt::format("the file is larger than {} bytes", max_bytes),
                        "a text file of a sensible size", "check that this is the right file");
    }
    text.append(buffer.data(), n);
  }
  refuse_lfs_pointer(path.string(), text);
  return text;
}

json read_json_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  const std::string where = path.string();
  std::string_view body = text;
  if (body.starts_with("\xef\xbb\xbf")) body.remove_prefix(3);
  return parse_json(body, {.where = where});
}

}  // namespace wgrad::io
