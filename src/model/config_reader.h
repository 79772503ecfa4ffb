#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace wgrad::model {

/// Typed access to the fields of a config object. Remembers which fields were asked for, so that
/// refuse_rest() can name those that nobody knows. null counts as absent. Borrows the object.
class ConfigReader {
 public:
  /// `where` is "FILE" or "FILE: outer_field".
  ConfigReader(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  /// The field where it is present and not null; marks it as known.
  const nlohmann::json* find(std::string_view field);
  bool has(std::string_view field) { return find(field) != nullptr; }
  bool asked_for(std::string_view field) const { return known_.contains(field); }

  /// An integer in [1, most]; without a fallback the field must be there.
  int64_t size(std::string_view field, int64_t most, std::optional<int64_t> fallback = {});
  /// A number greater than zero, and at most `most`.
  double positive(std::string_view field, std::optional<double> fallback = {},
                  double most = std::numeric_limits<double>::max());
  bool flag(std::string_view field, bool fallback);
  std::string text(std::string_view field, std::string_view fallback);

  /// The field, where present, must have this value: another would change the result in a way that
  /// is not built here.
  void must_be(std::string_view field, const nlohmann::json& neutral);
  /// The field does not change the result.
  void ignore(std::initializer_list<std::string_view> fields);
  /// An input error naming the first field that is neither known nor empty.
  void refuse_rest() const;

 private:
  [[noreturn]] void wrong(std::string_view field, const nlohmann::json& seen,
                          std::string_view expected) const;

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

/// A value for an error text, cut to a readable length.
std::string brief(const nlohmann::json& value);

}  // namespace wgrad::model
