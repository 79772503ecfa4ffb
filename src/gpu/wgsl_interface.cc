#include "gpu/wgsl_interface.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace wgrad::gpu {
namespace {

using Tokens = std::vector<std::string_view>;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Past a comment that starts at `i`; block comments nest.
size_t skip_comment(std::string_view text, size_t i) {
  if (text[i + 1] == '/') return std::min(text.find('\n', i), text.size());
  int depth = 0;
  for (; i < text.size(); ++i) {
    std::string_view pair = text.substr(i, 2);
    if (pair == "/*")
      ++depth, ++i;
    else if (pair == "*/" && (++i, --depth == 0))
      return i + 1;
  }
  return text.size();
}

/// Words (identifiers and numbers) and single other characters; comments and spaces dropped.
Tokens tokenize(std::string_view text) {
  Tokens tokens;
  for (size_t i = 0; i < text.size();) {
    if (std::isspace(static_cast<unsigned char>(text[i]))) {
      ++i;
    } else if (text[i] == '/' && i + 1 < text.size() &&
               (text[i + 1] == '/' || text[i + 1] == '*')) {
      i = skip_comment(text, i);
    } else {
      size_t end = i + 1;
      if (is_word(text[i])) {
        while (end < text.size() && is_word(text[end])) ++end;
      }
      tokens.push_back(text.substr(i, end - i));
      i = end;
    }
  }
  return tokens;
}

struct Variable {
  uint32_t binding = 0;
  bool uniform = false, writable = false;
};

struct Module {
  std::unordered_map<std::string_view, Variable> variables;
  std::unordered_map<std::string_view, Tokens> functions;  ///< name to the words of its body
};

uint32_t number(std::string_view token) {
  uint32_t n = 0;
  for (char c : token) {
    if (c < '0' || c > '9') break;
    n = std::min(n * 10 + static_cast<uint32_t>(c - '0'), uint32_t{1000});
  }
  return n;
}

/// Reads the module's declarations; `i` stands on a token at module scope.
class Reader {
 public:
  explicit Reader(const Tokens& tokens) : t_(tokens) {}

  Module read() {
    uint32_t binding = 0;
    while (i_ < t_.size()) {
      if (at(0) == "@" && at(1) == "binding") {
        binding = number(at(3));
        i_ += 5;
      } else if (at(0) == "var" && at(1) == "<") {
        read_variable(binding);
      } else if (at(0) == "fn") {
        read_function();
      } else {
        ++i_;
      }
    }
    return std::move(module_);
  }

 private:
  std::string_view at(size_t ahead) const {
    return i_ + ahead < t_.size() ? t_[i_ + ahead] : std::string_view();
  }

  void read_variable(uint32_t binding) {
    std::string_view space = at(2);
    bool writable = at(3) == "," && at(4) == "read_write";
    while (i_ < t_.size() && t_[i_] != ">") ++i_;
    if (space == "storage" || space == "uniform") {
      module_.variables[at(1)] = {binding, space == "uniform", writable};
    }
  }

  /// The words of the body that may name something of the module: no members, no parameters, no
  /// locals.
  void read_function() {
    Tokens& body = module_.functions[at(1)];
    std::set<std::string_view> locals;
    for (; i_ < t_.size() && t_[i_] != "{"; ++i_) {
      if (at(1) == ":") locals.insert(t_[i_]);
    }
    std::string_view declared;  // in scope after its declaration ends
    for (int depth = 0; i_ < t_.size(); ++i_) {
      const std::string_view before = t_[i_ - 1];
      if (t_[i_] == "{") ++depth;
      if (t_[i_] == ";" && !declared.empty()) locals.insert(std::exchange(declared, {}));
      if (before == "let" || before == "var" || before == "const") {
        declared = t_[i_];
      } else if (is_word(t_[i_][0]) && before != "." && !locals.contains(t_[i_])) {
        body.push_back(t_[i_]);
      }
      if (t_[i_] == "}" && --depth == 0) break;
    }
  }

  const Tokens& t_;
  size_t i_ = 0;
  Module module_;
};

}  // namespace

WgslInterface read_wgsl_interface(std::string_view text, std::string_view entry_point) {
  const Tokens tokens = tokenize(text);
  const Module module = Reader(tokens).read();
  WgslInterface result;
  result.found = module.functions.contains(entry_point);

  std::vector<std::string_view> pending{entry_point};
  std::set<std::string_view> seen{entry_point};
  while (!pending.empty()) {
    auto function = module.functions.find(pending.back());
    pending.pop_back();
    if (function == module.functions.end()) continue;
    for (std::string_view word : function->second) {
      if (!seen.insert(word).second) continue;
      if (module.functions.contains(word)) pending.push_back(word);
      auto v = module.variables.find(word);
      if (v == module.variables.end() || v->second.binding >= 32) continue;
      const Variable& variable = v->second;
      if (variable.uniform) {
        result.has_uniform = true;
        result.uniform_binding = variable.binding;
      } else {
        result.used |= 1u << variable.binding;
        if (variable.writable) result.writable |= 1u << variable.binding;
        result.storage_count = std::max(result.storage_count, variable.binding + 1);
      }
    }
  }
  if (result.has_uniform)
    result.storage_count = std::max(result.storage_count, result.uniform_binding);
  return result;
}

}  // namespace wgrad::gpu
