#include "io/json_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_descriptor.h"
#include "io/json.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr int kEnd = -1;

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Bytes of a file or pipe through a buffer, counting lines and columns.
class ByteReader {
 public:
  explicit ByteReader(FileDescriptor file) : file_(std::move(file)), buffer_(kBufferBytes) {}

  int peek() {
    return begin_ < end_ || fill() ? static_cast<unsigned char>(buffer_[begin_]) : kEnd;
  }

  int get() {
    const int c = peek();
    if (c == kEnd) return kEnd;
    ++begin_;
    ++column_;
    if (c == '\n') {
      ++line_;
      column_ = 1;
    }
    return c;
  }

  // Appends the rest of the line, without its newline, to `out`; false, and the rest is left,
  // once that would be more than `limit` bytes.
  bool get_line(std::string& out, std::size_t limit) {
    while (begin_ < end_ || fill()) {
      const char* from = buffer_.data() + begin_;
      const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
      const std::size_t n = newline == nullptr ? end_ - begin_ : newline - from;
      if (n > limit - out.size()) return false;
      out.append(from, n);
      begin_ += n;
      column_ += n;
      if (newline != nullptr) {
        get();
        break;
      }
    }
    return true;
  }

  void skip_line() {
    int c = 0;
    do {
      c = get();
    } while (c != kEnd && c != '\n');
  }

  void skip_byte_order_mark() {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    while (end_ < kMark.size()) {
      const std::size_t n = file_.read_some(std::span(buffer_).subspan(end_));
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
    end_ = file_.read_some(buffer_);
    return end_ > 0;
  }

  FileDescriptor file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t line_ = 1;
  std::size_t column_ = 1;
};

}  // namespace

struct JsonLines::State {
  State(FileDescriptor file, std::string name, std::size_t max_row_bytes)
      : reader(std::move(file)), name(std::move(name)), max_row_bytes(max_row_bytes) {}

  // The text of the next row goes to `text`, its place to `line` and `column`.
  bool next_line();
  bool next_element();
  void element_text();
  void begin_row() {
    text.clear();
    line = reader.line();
    column = reader.column();
  }
  void skip_space() {
    while (is_space(reader.peek())) reader.get();
  }
  [[noreturn]] void array_error(std::string_view seen, std::string_view expected);
  [[noreturn]] void too_long() const {
    throw input_error(fmt::format("{}:{}", name, line),
                      fmt::format("the row is longer than {} bytes", max_row_bytes), "shorter rows",
                      "split the row, or check that the file is JSON lines");
  }

  ByteReader reader;
  std::string name;
  std::size_t max_row_bytes;
  bool array = false;
  bool started = false;
  bool finished = false;
  bool within_line = false;  // after a line that was too long: its rest comes next
  std::string text;
  std::size_t line = 1;
  std::size_t column = 1;
  std::size_t rows = 0;
};

bool JsonLines::State::next_line() {
  if (std::exchange(within_line, false)) reader.skip_line();
  while (reader.peek() != kEnd) {
    begin_row();
    if (!reader.get_line(text, max_row_bytes)) {
      within_line = true;
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
  element_text();
  return true;
}

// Takes one value: up to where its brackets close, or, for what has none, to the next separator.
void JsonLines::State::element_text() {
  std::size_t depth = 0;
  bool in_string = false;
  bool fits = true;
  while (true) {
    const int c = reader.peek();
    if (c == kEnd) array_error("the file ends within a row", "a complete array");
    if (!in_string && depth == 0 && (c == ',' || c == ']' || c == '}')) break;
    reader.get();
    fits = fits && text.size() < max_row_bytes;
    if (fits) text.push_back(static_cast<char>(c));
    if (in_string) {
      if (c == '\\' && reader.peek() != kEnd) {
        const int escaped = reader.get();
        if (fits) text.push_back(static_cast<char>(escaped));
      }
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) break;
    }
  }
  if (!fits) too_long();
}

JsonLines::JsonLines(std::unique_ptr<State> state) : state_(std::move(state)) {}
JsonLines::JsonLines(JsonLines&&) noexcept = default;
JsonLines& JsonLines::operator=(JsonLines&&) noexcept = default;
JsonLines::~JsonLines() = default;

JsonLines JsonLines::open(const std::filesystem::path& path, std::size_t max_row_bytes) {
  const bool standard_input = path == "-";
  FileDescriptor file;
  if (standard_input) {
    const int copy = ::dup(STDIN_FILENO);
    if (copy < 0) throw disk_error("standard input", "open", errno, ErrorKind::kInput);
    file = FileDescriptor(copy, "standard input");
  } else {
    file = FileDescriptor::open_input(path);
  }
  auto state = std::make_unique<State>(
      std::move(file), standard_input ? "standard input" : path.string(), max_row_bytes);
  state->reader.skip_byte_order_mark();
  if (path.extension() == ".json") {
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

std::string JsonLines::where() const { return fmt::format("{}:{}", state_->name, state_->line); }
std::size_t JsonLines::line() const { return state_->line; }
std::size_t JsonLines::rows() const { return state_->rows; }

}  // namespace wgrad::io
