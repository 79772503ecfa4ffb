#include "io/gguf.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "wgrad/error.h"

namespace wgrad::io {
namespace {

std::string_view kind_name(const GgufValue& value) {
  constexpr std::string_view kNames[] = {"a whole number", "a whole number", "a fraction",
                                         "true or false",  "a string",       "an array"};
  return kNames[value.value.index()];
}

std::optional<std::int64_t> as_integer(const GgufValue& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value.value)) return *i;
  const auto* u = std::get_if<std::uint64_t>(&value.value);
  if (u == nullptr || *u > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*u);
}

std::optional<double> as_number(const GgufValue& value) {
  if (const auto* d = std::get_if<double>(&value.value)) return *d;
  if (const auto i = as_integer(value)) return static_cast<double>(*i);
  return std::nullopt;
}

template <typename To, typename From>
std::optional<std::vector<To>> converted(const std::vector<From>& from) {
  std::vector<To> result;
  result.reserve(from.size());
  for (const From& value : from) {
    if constexpr (std::is_same_v<From, std::uint64_t> && std::is_same_v<To, std::int64_t>) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
    }
    result.push_back(static_cast<To>(value));
  }
  return result;
}

std::optional<std::vector<std::int64_t>> as_integers(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return std::nullopt;
  if (const auto* i = std::get_if<std::vector<std::int64_t>>(array)) return *i;
  if (const auto* u = std::get_if<std::vector<std::uint64_t>>(array)) {
    return converted<std::int64_t>(*u);
  }
  return std::nullopt;
}

std::optional<std::vector<double>> as_numbers(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return std::nullopt;
  if (const auto* d = std::get_if<std::vector<double>>(array)) return *d;
  if (const auto* i = std::get_if<std::vector<std::int64_t>>(array)) return converted<double>(*i);
  if (const auto* u = std::get_if<std::vector<std::uint64_t>>(array)) return converted<double>(*u);
  return std::nullopt;
}

template <typename T>
std::optional<T> as_plain(const GgufValue& value) {
  const T* plain = std::get_if<T>(&value.value);
  return plain == nullptr ? std::nullopt : std::optional<T>(*plain);
}

std::optional<std::vector<std::string_view>> as_strings(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return std::nullopt;
  const auto* strings = std::get_if<std::vector<std::string_view>>(array);
  return strings == nullptr ? std::nullopt : std::optional(*strings);
}

// What `convert` makes of the key's value; an error that says what was expected if it refuses.
template <typename Convert>
auto typed(const GgufFile& file, std::string_view key, std::string_view expected, Convert convert)
    -> decltype(convert(std::declval<const GgufValue&>())) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  auto result = convert(*value);
  if (!result) {
    throw input_error(fmt::format("{}: key {}", file.file().path().string(), key),
                      fmt::format("it holds {}", kind_name(*value)), expected,
                      "fetch or convert the model again");
  }
  return result;
}

}  // namespace

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

std::span<const std::byte> GgufFile::raw(std::string_view key) const {
  return raw_.at(std::string(key));
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  return typed(*this, key, "a whole number below 2^63", as_integer);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  return typed(*this, key, "a number", as_number);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  return typed(*this, key, "true or false", as_plain<bool>);
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  return typed(*this, key, "a string", as_plain<std::string_view>);
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  return typed(*this, key, "an array of whole numbers", as_integers);
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  return typed(*this, key, "an array of numbers", as_numbers);
}

std::optional<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  return typed(*this, key, "an array of strings", as_strings);
}

const TensorView* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(std::string(name));
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace wgrad::io
