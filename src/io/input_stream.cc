#include "io/input_stream.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_descriptor.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr std::string_view kGzipMark = "\x1f\x8b";

FileDescriptor open_file(const std::filesystem::path& path) {
  if (path != "-") return FileDescriptor::open_input(path);
  const int copy = ::dup(STDIN_FILENO);
  if (copy < 0) throw disk_error("standard input", "open", errno, ErrorKind::kInput);
  return {copy, "standard input"};
}

// zlib's state for gzip members that follow each other.
class Inflater {
 public:
  Inflater() {
    constexpr int kGzip = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  // Unpacks from `in`, which it shortens, into `out`; the bytes written. False in `good`: damaged.
  std::size_t unpack(std::span<const char>& in, std::span<char> out, bool& good) {
    if (std::exchange(at_end_, false)) inflateReset(&stream_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), kBufferBytes));
    const std::size_t room = stream_.avail_out;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    at_end_ = result == Z_STREAM_END;
    good = at_end_ || result == Z_OK || result == Z_BUF_ERROR;
    in = in.last(stream_.avail_in);
    return room - stream_.avail_out;
  }
  // Between two members, where the data may end.
  bool at_end() const { return at_end_; }

 private:
  z_stream stream_{};
  bool at_end_ = false;
};

}  // namespace

struct InputStream::State {
  FileDescriptor file;
  std::string name;
  std::vector<char> buffer = std::vector<char>(kBufferBytes);
  std::span<const char> ready;  // of the buffer, not yet handed on
  std::unique_ptr<Inflater> inflater;

  // Reads on behind what is ready; false at the end of the file.
  bool fill() {
    std::memmove(buffer.data(), ready.data(), ready.size());
    const std::size_t n = file.read_some(std::span(buffer).subspan(ready.size()));
    ready = std::span(buffer).first(ready.size() + n);
    return n > 0;
  }

  std::size_t unpack(std::span<char> out) {
    while (true) {
      if (ready.empty() && !fill()) {
        if (inflater->at_end()) return 0;
        refuse("its gzip data ends too early");
      }
      bool good = true;
      const std::size_t n = inflater->unpack(ready, out, good);
      if (!good) refuse("its gzip data is damaged");
      if (n > 0) return n;
    }
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw input_error(name, what, "expected a whole gzip file",
                      "check it with gzip -t and copy it again");
  }
};

InputStream::InputStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
InputStream::InputStream(InputStream&&) noexcept = default;
InputStream& InputStream::operator=(InputStream&&) noexcept = default;
InputStream::~InputStream() = default;

InputStream InputStream::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  state->file = open_file(path);
  state->name = path == "-" ? "standard input" : path.string();
  state->ready = std::span(state->buffer).first(0);
  while (state->ready.size() < kGzipMark.size() && state->fill()) {
  }
  if (std::string_view(state->ready.data(), state->ready.size()).starts_with(kGzipMark)) {
    state->inflater = std::make_unique<Inflater>();
  }
  return InputStream(std::move(state));
}

std::size_t InputStream::read_some(std::span<char> out) {
  State& s = *state_;
  if (s.inflater) return s.unpack(out);
  if (s.ready.empty()) return s.file.read_some(out);
  const std::size_t n = std::min(out.size(), s.ready.size());
  std::memcpy(out.data(), s.ready.data(), n);
  s.ready = s.ready.subspan(n);
  return n;
}

const std::string& InputStream::name() const { return state_->name; }

}  // namespace wgrad::io
