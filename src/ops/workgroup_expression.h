#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "wgrad/error.h"

namespace wgrad::ops {

/// Evaluates an expression of kernels() or the manifest (workgroups, elements): integers, fields,
/// + - * /, ceil_div, min, max, (). Throws on a result past 63 bits and on division by zero.
class WorkgroupExpression {
 public:
  WorkgroupExpression(std::string_view text, const std::map<std::string, double>& fields)
      : text_(text), fields_(fields) {}

  uint64_t value() {
    const int64_t result = sum();
    if (at_ != text_.size()) throw bad("rest of expression: " + rest());
    return static_cast<uint64_t>(result);
  }

 private:
  Error bad(std::string_view what) const {
    return input_error("kernel's sizes", fmt::format("{} in {}", what, text_));
  }
  std::string rest() const { return std::string(text_.substr(at_)); }
  bool take(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  int64_t sum() {
    int64_t v = product();
    for (;;) {
      if (take('+')) {
        if (__builtin_add_overflow(v, product(), &v)) throw bad("too large a number");
      } else if (take('-')) {
        v -= product();
      } else {
        return v;
      }
    }
  }
  int64_t product() {
    int64_t v = factor();
    for (;;) {
      if (take('*')) {
        if (__builtin_mul_overflow(v, factor(), &v)) throw bad("too large a number");
      } else if (take('/')) {
        v /= divisor(factor());
      } else {
        return v;
      }
    }
  }
  int64_t divisor(int64_t v) const {
    if (v == 0) throw bad("division by zero");
    return v;
  }
  int64_t factor() {
    if (take('(')) {
      const int64_t v = sum();
      if (!take(')')) throw bad("expected ) at " + rest());
      return v;
    }
    std::string word;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      word += text_[at_++];
    }
    if (word.empty()) throw bad("expected a number or name at " + rest());
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return std::stoll(word);
    if (!take('(')) return static_cast<int64_t>(fields_.at(word));
    const int64_t a = sum();
    if (!take(',')) throw bad("expected , at " + rest());
    const int64_t b = sum();
    if (!take(')')) throw bad("expected ) at " + rest());
    if (word == "ceil_div") return a / divisor(b) + (a % b > 0 ? 1 : 0);
    if (word == "min") return std::min(a, b);
    if (word == "max") return std::max(a, b);
    throw bad("unknown function " + word);
  }

  std::string_view text_;
  const std::map<std::string, double>& fields_;
  size_t at_ = 0;
};

}  // namespace wgrad::ops
