// The layout, all little-endian:
//   "GGUF", version u32, tensor count u64, key count u64
//   keys: name, value type u32, value; a string is a length u64 and its bytes; an array is an
//     element type u32, a count u64 and the elements
//   tensors: name, dimension count u32, dimensions u64 (innermost first), type u32, offset u64
//   padding to general.alignment (32 if not given), then the tensors' bytes, each aligned
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "io/gguf.h"
#include "io/gguf_format.h"
#include "wgrad/error.h"

namespace wgrad::io {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as little-endian");

namespace {

constexpr std::uint32_t kMaxDimensions = 4;  // ggml's own limit
constexpr int kMaxArrayDepth = 4;
constexpr std::string_view kFetchAgain = "fetch or convert the file again";

// The fewest bytes that a value of the type takes.
std::uint64_t smallest_size(std::uint32_t type) {
  constexpr std::uint64_t kSizes[kGgufValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kSizes[type];
}

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(MappedFile file) : where_(file.path().string()) {
    result_.file_ = std::move(file);
    bytes_ = result_.file_.bytes();
  }

  GgufFile parse() {
    const auto [tensor_count, key_count] = parse_counts();
    for (std::uint64_t i = 0; i < key_count; ++i) parse_key();
    for (std::uint64_t i = 0; i < tensor_count; ++i) parse_tensor();
    place_tensors();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(std::string_view seen, std::string_view expected) const {
    throw input_error(where_, seen, expected, kFetchAgain);
  }

  std::uint64_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t size, std::string_view what) {
    if (size > left()) {
      fail(fmt::format("the file ends within {} at byte {}", what, at_), "a complete file");
    }
    const auto part = bytes_.subspan(at_, size);
    at_ += size;
    return part;
  }

  template <typename T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view read_string(std::string_view what) {
    const auto part = take(read<std::uint64_t>(what), what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  // A count of things that each take `size` bytes at least; so nothing large is reserved for a
  // count that the file cannot hold.
  std::uint64_t read_count(std::uint64_t size, std::string_view what) {
    const auto count = read<std::uint64_t>(what);
    if (count > left() / size) {
      fail(fmt::format("{} is {}, more than the file's {} bytes can hold", what, count,
                       bytes_.size()),
           "a complete file");
    }
    return count;
  }

  std::pair<std::uint64_t, std::uint64_t> parse_counts() {
    if (left() < 4 || std::memcmp(take(4, "the file type").data(), "GGUF", 4) != 0) {
      fail("the file does not begin with \"GGUF\"", "a GGUF file");
    }
    result_.version_ = read<std::uint32_t>("the version");
    if (result_.version_ != 2 && result_.version_ != 3) {
      const bool swapped = (result_.version_ & 0xffffu) == 0;
      fail(swapped ? std::string("the file is big-endian")
                   : fmt::format("the GGUF version is {}", result_.version_),
           "version 2 or 3, little-endian");
    }
    const auto tensors = read_count(24, "the number of tensors");
    const auto keys = read_count(13, "the number of keys");
    return {tensors, keys};
  }

  void parse_key() {
    const std::string key(read_string("a key"));
    const std::string what = fmt::format("the value of {}", key.substr(0, 80));
    const std::uint64_t begin = at_;
    const auto type = read<std::uint32_t>(what);
    GgufValue value = parse_value(type, what, 0);
    if (!result_.values_.emplace(key, std::move(value)).second) {
      fail(fmt::format("the key {} appears twice", key), "each key once");
    }
    result_.raw_.emplace(key, bytes_.subspan(begin, at_ - begin));
    result_.keys_.push_back(key);
  }

  void check_type(std::uint32_t type, const std::string& what) const {
    if (type >= kGgufValueTypes) {
      fail(fmt::format("{} has the unknown type {}", what, type), "a type of GGUF 3");
    }
  }

  GgufValue parse_value(std::uint32_t type, const std::string& what, int depth) {
    check_type(type, what);
    switch (type) {
      case kGgufFloat32:
        return {static_cast<double>(read<float>(what))};
      case kGgufFloat64:
        return {read<double>(what)};
      case kGgufBoolean:
        return {read<std::uint8_t>(what) != 0};
      case kGgufString:
        return {read_string(what)};
      case kGgufArray:
        return {parse_array(what, depth + 1)};
      case kGgufInt8:
      case kGgufInt16:
      case kGgufInt32:
      case kGgufInt64:
        return {parse_signed(type, what)};
      default:
        return {parse_unsigned(type, what)};
    }
  }

  std::int64_t parse_signed(std::uint32_t type, const std::string& what) {
    if (type == kGgufInt8) return read<std::int8_t>(what);
    if (type == kGgufInt16) return read<std::int16_t>(what);
    if (type == kGgufInt32) return read<std::int32_t>(what);
    return read<std::int64_t>(what);
  }

  std::uint64_t parse_unsigned(std::uint32_t type, const std::string& what) {
    if (type == kGgufUint8 || type == kGgufBoolean) return read<std::uint8_t>(what);
    if (type == kGgufUint16) return read<std::uint16_t>(what);
    if (type == kGgufUint32) return read<std::uint32_t>(what);
    return read<std::uint64_t>(what);
  }

  template <typename T, typename Parse>
  GgufArray elements(std::uint64_t count, Parse parse) {
    std::vector<T> result;
    result.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) result.push_back(parse());
    return result;
  }

  GgufArray parse_array(const std::string& what, int depth) {
    if (depth > kMaxArrayDepth) {
      fail(fmt::format("{} has arrays nested deeper than {}", what, kMaxArrayDepth),
           "flatter data");
    }
    const auto type = read<std::uint32_t>(what);
    check_type(type, what);
    const std::uint64_t count = read_count(smallest_size(type), what);
    switch (type) {
      case kGgufFloat32:
        return elements<double>(count, [&] { return static_cast<double>(read<float>(what)); });
      case kGgufFloat64:
        return elements<double>(count, [&] { return read<double>(what); });
      case kGgufString:
        return elements<std::string_view>(count, [&] { return read_string(what); });
      case kGgufArray:
        return elements<GgufValue>(count, [&] { return GgufValue{parse_array(what, depth + 1)}; });
      case kGgufInt8:
      case kGgufInt16:
      case kGgufInt32:
      case kGgufInt64:
        return elements<std::int64_t>(count, [&] { return parse_signed(type, what); });
      default:
        return elements<std::uint64_t>(count, [&] { return parse_unsigned(type, what); });
    }
  }

  void parse_tensor() {
    TensorView tensor;
    tensor.name = read_string("a tensor's name");
    tensor.where = fmt::format("{}: tensor {}", where_, tensor.name.substr(0, 200));
    const auto dimensions = read<std::uint32_t>("a tensor's dimensions");
    if (dimensions > kMaxDimensions) {
      throw input_error(tensor.where, fmt::format("it has {} dimensions", dimensions),
                        fmt::format("at most {}", kMaxDimensions), kFetchAgain);
    }
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto size = read<std::uint64_t>("a tensor's dimensions");
      if (size > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        throw input_error(tensor.where, fmt::format("a dimension is {}", size),
                          "a size that exists", kFetchAgain);
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto number = read<std::uint32_t>("a tensor's type");
    const auto type = ggml_type(number);
    if (!type) {
      throw input_error(tensor.where, fmt::format("it is stored as {}", ggml_type_name(number)),
                        "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K",
                        "fetch the model in another quantisation");
    }
    tensor.type = *type;
    offsets_.push_back(read<std::uint64_t>("a tensor's offset"));
    if (!result_.tensor_index_.emplace(tensor.name, result_.tensors_.size()).second) {
      throw input_error(tensor.where, "the name appears twice", "each tensor once", kFetchAgain);
    }
    result_.tensors_.push_back(std::move(tensor));
  }

  std::uint64_t alignment() const {
    const auto given = result_.integer("general.alignment");
    if (!given) return kGgufAlignment;
    if (*given <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(*given)) ||
        *given > (std::int64_t{1} << 30)) {
      fail(fmt::format("general.alignment is {}", *given), "a power of two");
    }
    return static_cast<std::uint64_t>(*given);
  }

  // The bytes of each tensor, once the place where the data begins is known.
  void place_tensors() {
    const std::uint64_t align = alignment();
    const std::uint64_t begin =
        std::min<std::uint64_t>((at_ + align - 1) / align * align, bytes_.size());
    const auto data = bytes_.subspan(begin);
    for (std::size_t i = 0; i < result_.tensors_.size(); ++i) {
      TensorView& tensor = result_.tensors_[i];
      const auto size = tensor_bytes(tensor.type, tensor.shape);
      if (!size) {
        throw input_error(tensor.where,
                          fmt::format("{} cannot be stored as {}", shape_text(tensor.shape),
                                      file_type_name(tensor.type)),
                          fmt::format("rows of whole blocks of {} and a size that exists",
                                      block_elements(tensor.type)),
                          kFetchAgain);
      }
      const std::uint64_t offset = offsets_[i];
      if (offset % align != 0 || offset > data.size() || *size > data.size() - offset) {
        throw input_error(tensor.where,
                          fmt::format("its {} bytes at offset {} are not within the {} data bytes "
                                      "of the file or not aligned to {}",
                                      *size, offset, data.size(), align),
                          "a complete file", kFetchAgain);
      }
      tensor.bytes = data.subspan(offset, *size);
    }
    check_overlap();
  }

  void check_overlap() const {
    std::vector<const TensorView*> order;
    for (const TensorView& tensor : result_.tensors_) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
      return std::pair(a->bytes.data(), a->bytes.size()) <
             std::pair(b->bytes.data(), b->bytes.size());
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const auto& before = order[i - 1]->bytes;
      if (before.data() + before.size() <= order[i]->bytes.data()) continue;
      throw input_error(order[i]->where,
                        fmt::format("its bytes overlap those of {}", order[i - 1]->name),
                        "tensors one after another", kFetchAgain);
    }
  }

  std::string where_;
  GgufFile result_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::vector<std::uint64_t> offsets_;
};

GgufFile GgufFile::open(const std::filesystem::path& path) {
  return GgufParser(MappedFile::open(path)).parse();
}

}  // namespace wgrad::io
