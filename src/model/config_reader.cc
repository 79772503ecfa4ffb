#include "model/config_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "wgrad/error.h"

namespace wgrad::model {

using nlohmann::json;

std::string brief(const json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

ConfigReader::ConfigReader(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw input_error(where_, brief(object), "a JSON object");
}

const json* ConfigReader::find(std::string_view field) {
  known_.emplace(field);
  const auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigReader::wrong(std::string_view field, const json& seen,
                         std::string_view expected) const {
  throw input_error(where_, fmt::format("{} is {}", field, brief(seen)), expected);
}

int64_t ConfigReader::size(std::string_view field, int64_t most, std::optional<int64_t> fallback) {
  const json* value = find(field);
  if (value == nullptr) {
    if (fallback) return *fallback;
    throw input_error(where_, fmt::format("{} is missing", field),
                      fmt::format("an integer from 1 to {}", most));
  }
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() <= static_cast<uint64_t>(most)
                        : value->is_number_integer() && value->get<int64_t>() <= most;
  if (!fits || value->get<int64_t>() < 1) {
    wrong(field, *value, fmt::format("an integer from 1 to {}", most));
  }
  return value->get<int64_t>();
}

double ConfigReader::positive(std::string_view field, std::optional<double> fallback, double most) {
  const std::string expected = most < std::numeric_limits<double>::max()
                                   ? fmt::format("a number greater than 0, at most {}", most)
                                   : "a number greater than 0";
  const json* value = find(field);
  if (value == nullptr) {
    if (fallback) return *fallback;
    throw input_error(where_, fmt::format("{} is missing", field), expected);
  }
  if (!value->is_number()) wrong(field, *value, expected);
  const double number = value->get<double>();
  if (!(number > 0 && number <= most)) wrong(field, *value, expected);
  return number;
}

bool ConfigReader::flag(std::string_view field, bool fallback) {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong(field, *value, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::text(std::string_view field, std::string_view fallback) {
  const json* value = find(field);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) wrong(field, *value, "a string");
  return value->get<std::string>();
}

void ConfigReader::must_be(std::string_view field, const json& neutral) {
  const json* value = find(field);
  if (value == nullptr || *value == neutral) return;
  throw input_error(where_, fmt::format("{} is {}", field, brief(*value)),
                    fmt::format("{}: another value changes the result and is not built in wgrad",
                                brief(neutral)));
}

void ConfigReader::ignore(std::initializer_list<std::string_view> fields) {
  known_.insert(fields.begin(), fields.end());
}

void ConfigReader::refuse_rest() const {
  for (const auto& [field, value] : object_.items()) {
    // Names with a leading underscore are notes of the writing program.
    if (known_.contains(field) || field.starts_with('_')) continue;
    if (value.is_null() || value == json(false) || (value.is_structured() && value.empty())) {
      continue;
    }
    throw input_error(where_, fmt::format("{} is {}", field, brief(value)),
                      "only fields whose effect on the result is known",
                      "if it has none, remove it from the file");
  }
}

}  // namespace wgrad::model
