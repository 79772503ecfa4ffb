#include "io/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/lfs_pointer.h"
#include "io/input_stream.h"
#include "io/json.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr int kEnd = -1;

std::filesystem::path without_gz(const std::filesystem::path& path) {
  return path.extension() == ".gz" ? path.stem() : path;
}

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Bytes of an input through a buffer, counting lines and columns.
class ByteReader {
 public:
  explicit ByteReader(InputStream input) : input_(std::move(input)), buffer_(kBufferBytes) {}

  int peek() {
    const std::string_view bytes = window();
    return bytes.empty() ? kEnd : static_cast<unsigned char>(bytes[0]);
  }

  int get() {
    const int c = peek();
    if (c != kEnd) take(1);
    return c;
  }

  // The bytes that are there, at least one; none at the end.
  std::string_view window() {
    if (begin_ == end_ && !fill()) return {};
    return {buffer_.data() + begin_, end_ - begin_};
  }

  // Takes the first `n` bytes of the window.
  void take(std::size_t n) {
    const std::string_view taken = window().substr(0, n);
    begin_ += n;
    const std::size_t newline = taken.rfind('\n');
    if (newline == std::string_view::npos) {
      column_ += n;
      return;
    }
    line_ += static_cast<std::size_t>(std::count(taken.begin(), taken.end(), '\n'));
    column_ = n - newline;
  }

  // Appends the rest of the line, without its newline, to `out`; false, and the rest is left,
  // once that would be more than `limit` bytes.
  bool get_line(std::string& out, std::size_t limit) {
    for (std::string_view bytes = window(); !bytes.empty(); bytes = window()) {
      const std::size_t newline = bytes.find('\n');
      const std::string_view part = bytes.substr(0, newline);
      if (part.size() > limit - out.size()) return false;
      out.append(part);
      take(newline == std::string_view::npos ? part.size() : newline + 1);
      if (newline != std::string_view::npos) break;
    }
    return true;
  }

  void skip_line() {
    for (std::string_view bytes = window(); !bytes.empty(); bytes = window()) {
      const std::size_t newline = bytes.find('\n');
      take(newline == std::string_view::npos ? bytes.size() : newline + 1);
      if (newline != std::string_view::npos) break;
    }
  }

  void skip_byte_order_mark() {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    while (end_ < kMark.size()) {
      const std::size_t n = input_.read_some(std::span(buffer_).subspan(end_));
      if (n == 0) break;
      end_ += n;
    }
    if (std::string_view(buffer_.data(), end_).starts_with(kMark)) begin_ = kMark.size();
  }

  std::size_t line() const { return line_; }
  std::size_t column() const { return column_; }

 private:
  bool fill() {
    begin_ = 0;
    end_ = input_.read_some(buffer_);
    return end_ > 0;
  }

  InputStream input_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t line_ = 1;
  std::size_t column_ = 1;
};

// Finds the end of one value of an array: where its brackets close, or, for what has none, at the
// next separator.
class ElementEnd {
 public:
  // How many of these bytes, which follow those of the calls before, belong to the value.
  std::size_t find(std::string_view bytes) {
    std::size_t n = 0;
    for (; n < bytes.size() && !found_; ++n) {
      const char c = bytes[n];
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
      } else if (depth_ == 0 && (c == ',' || c == ']' || c == '}')) {
        found_ = true;
        break;
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if (c == '}' || c == ']') {
        found_ = --depth_ == 0;
      }
    }
    return n;
  }
  bool found() const { return found_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool found_ = false;
};

constexpr std::string_view kRowsByPandas =
    "turn it into JSON lines, in Python: pandas.{}(FILE).to_json(\"rows.jsonl\", "
    "orient=\"records\", lines=True); the columns become the rows' keys";

/// Tables and plain texts are told from JSON by how they begin, texts also by their names.
void refuse_other_formats(const std::filesystem::path& path, std::string_view begin) {
  const std::string where = path == "-" ? "standard input" : path.string();
  const auto refuse = [&](std::string_view seen, const std::string& action) {
    throw input_error(where, seen, "JSON lines: one object a line", action);
  };
  refuse_lfs_pointer(where, begin);
  const auto by_pandas = [](std::string_view reader) {
    return fmt::format(fmt::runtime(kRowsByPandas), reader);
  };
  if (begin.starts_with("PAR1")) refuse("this is a Parquet file", by_pandas("read_parquet"));
  if (begin.starts_with("ARROW1")) refuse("this is an Arrow file", by_pandas("read_feather"));
  if (begin.starts_with("PK\x03\x04")) {
    refuse("this is a zip or spreadsheet file",
           "unpack it, or save its table as CSV and turn that "
           "into JSON lines");
  }
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || begin[first] == '{' || begin[first] == '[') return;
  const std::string ending = without_gz(path).extension();
  if (ending == ".csv" || ending == ".tsv") {
    refuse("this is a table of text", by_pandas("read_csv"));
  }
  if (ending == ".txt" || ending == ".md") {
    refuse("this is plain text", "write each text as a line {\"text\": \"...\"}");
  }
}

}  // namespace

struct JsonLines::State {
  State(InputStream input, std::size_t max_row_bytes)
      : name(input.name()), reader(std::move(input)), max_row_bytes(max_row_bytes) {}

  // The text of the next row goes to `text`, its place to `line` and `column`.
  bool next_line();
  bool next_element();
  bool get_element(std::string* out);
  void begin_row() {
    text.clear();
    line = reader.line();
    column = reader.column();
  }
  void skip_space() {
    while (is_space(reader.peek())) reader.get();
  }
  [[noreturn]] void array_error(std::string_view seen, std::string_view expected);
  [[noreturn]] void too_long() {
    within_row = true;
    throw input_error(fmt::format("{}:{}", name, line),
                      fmt::format("the row is longer than {} bytes", max_row_bytes), "shorter rows",
                      "split the row, or check that the file is JSON lines");
  }

  std::string name;
  ByteReader reader;
  std::size_t max_row_bytes;
  bool array = false;
  bool started = false;
  bool finished = false;
  bool within_row = false;  // after a row that was too long: its rest comes next
  ElementEnd element;
  std::string text;
  std::size_t line = 1;
  std::size_t column = 1;
  std::size_t items = 0;  // of the array so far, from 1
  std::size_t rows = 0;
};

bool JsonLines::State::next_line() {
  if (std::exchange(within_row, false)) reader.skip_line();
  while (reader.peek() != kEnd) {
    begin_row();
    if (!reader.get_line(text, max_row_bytes)) {
      too_long();
    }
    if (!std::all_of(text.begin(), text.end(), is_space)) return true;
  }
  return false;
}

void JsonLines::State::array_error(std::string_view seen, std::string_view expected) {
  finished = true;
  line = reader.line();
  throw input_error(fmt::format("{}:{}:{}", name, line, reader.column()), seen, expected,
                    "correct the array; the rows after this place cannot be read");
}

bool JsonLines::State::next_element() {
  if (finished) return false;
  if (std::exchange(within_row, false)) get_element(nullptr);
  skip_space();
  if (!std::exchange(started, true)) {
    reader.get();  // the '[' that open() saw
    skip_space();
    finished = reader.peek() == ']';
  } else if (reader.peek() == ',') {
    reader.get();
    skip_space();
    if (reader.peek() == ']') array_error("a comma before the closing bracket", "a row after it");
  } else if (reader.peek() == ']') {
    finished = true;
  } else {
    array_error(reader.peek() == kEnd ? "the file ends within the array" : "no comma after a row",
                "',' or ']' after a row");
  }
  if (finished) {
    reader.get();
    skip_space();
    if (reader.peek() != kEnd) array_error("text after the array", "the end of the file");
    return false;
  }
  begin_row();
  ++items;
  element = {};
  if (!get_element(&text)) too_long();
  return true;
}

// Appends the rest of a value to `out`, or skips it; false, and the rest is left, once that would
// be more than the limit.
bool JsonLines::State::get_element(std::string* out) {
  while (!element.found()) {
    const std::string_view bytes = reader.window();
    if (bytes.empty()) array_error("the file ends within a row", "a complete array");
    const std::size_t n = element.find(bytes);
    if (out) out->append(bytes.substr(0, n));
    reader.take(n);
    if (out && out->size() > max_row_bytes) return false;
  }
  return true;
}

JsonLines::JsonLines(std::unique_ptr<State> state) : state_(std::move(state)) {}
JsonLines::JsonLines(JsonLines&&) noexcept = default;
JsonLines& JsonLines::operator=(JsonLines&&) noexcept = default;
JsonLines::~JsonLines() = default;

JsonLines JsonLines::open(const std::filesystem::path& path, std::size_t max_row_bytes) {
  auto state = std::make_unique<State>(InputStream::open(path), max_row_bytes);
  state->reader.skip_byte_order_mark();
  refuse_other_formats(path, state->reader.window());
  if (without_gz(path).extension() == ".json") {
    state->skip_space();
    state->array = state->reader.peek() == '[';
  }
  return JsonLines(std::move(state));
}

bool JsonLines::next(nlohmann::ordered_json& row) {
  State& s = *state_;
  if (!(s.array ? s.next_element() : s.next_line())) return false;
  row =
      parse_ordered_json(s.text, {.where = s.name, .first_line = s.line, .first_column = s.column});
  ++s.rows;
  return true;
}

std::string JsonLines::where() const {
  const State& s = *state_;
  return s.array && s.items > 0 ? fmt::format("{}, item {}", s.name, s.items)
                                : fmt::format("{}:{}", s.name, s.line);
}
std::size_t JsonLines::line() const { return state_->line; }
bool JsonLines::within_row() const { return state_->within_row; }
std::size_t JsonLines::rows() const { return state_->rows; }

}  // namespace wgrad::io
