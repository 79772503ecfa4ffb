#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "train/options.h"

namespace wgrad::train {
namespace {

template <typename T>
T read_number(const char* option, const std::string& entry, std::string_view text,
              const char* expected) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw input_error(option, fmt::format("\"{}\"", entry), expected, "give another value");
  }
  return value;
}

/// NAME=VALUE; a name may hold "=" itself.
template <typename T>
std::map<std::string, T> read_pattern(const char* option, const std::vector<std::string>& list) {
  std::map<std::string, T> values;
  for (const std::string& entry : list) {
    const size_t equals = entry.rfind('=');
    constexpr const char* kExpected = "expected NAME=VALUE, the value greater than 0";
    if (equals == std::string::npos || equals == 0) {
      throw input_error(option, fmt::format("\"{}\"", entry), kExpected, "give another value");
    }
    const T value =
        read_number<T>(option, entry, std::string_view(entry).substr(equals + 1), kExpected);
    const bool fits = value > 0 && static_cast<double>(value) <= 1e30;
    if (!fits || !values.emplace(entry.substr(0, equals), value).second) {
      throw input_error(option, fmt::format("\"{}\"", entry),
                        fits ? "expected each name once" : kExpected, "give another value");
    }
  }
  return values;
}

template <typename T>
std::vector<std::string> pattern_list(const std::map<std::string, T>& values) {
  std::vector<std::string> list;
  for (const auto& [name, value] : values) list.push_back(fmt::format("{}={}", name, value));
  return list;
}

}  // namespace

model::LoraConfig lora_config(const TrainOptions& o) {
  model::LoraConfig lora;
  lora.rank = o.rank;
  lora.alpha = o.alpha;
  lora.dropout = o.dropout;
  lora.rslora = o.rslora;
  if (o.target_regex.empty()) lora.targets = o.targets;
  lora.dora = o.dora;
  lora.target_pattern = o.target_regex;
  lora.exclude = o.exclude;
  for (const std::string& layer : o.layers) {
    lora.layers.push_back(read_number<int64_t>("--layers-to-transform", layer, layer,
                                               "expected numbers of blocks, from 0"));
  }
  lora.rank_pattern = read_pattern<int64_t>("--rank-pattern", o.rank_pattern);
  lora.alpha_pattern = read_pattern<double>("--alpha-pattern", o.alpha_pattern);
  lora.modules_to_save = o.modules_to_save;
  return lora;
}

void set_lora_config(TrainOptions& o, const model::LoraConfig& lora) {
  o.rank = lora.rank;
  o.alpha = lora.alpha;
  o.dropout = lora.dropout;
  o.rslora = lora.rslora;
  if (lora.target_pattern.empty()) o.targets = lora.targets;
  o.dora = lora.dora;
  o.target_regex = lora.target_pattern;
  o.exclude = lora.exclude;
  o.layers.clear();
  for (const int64_t layer : lora.layers) o.layers.push_back(fmt::format("{}", layer));
  o.rank_pattern = pattern_list(lora.rank_pattern);
  o.alpha_pattern = pattern_list(lora.alpha_pattern);
  o.modules_to_save = lora.modules_to_save;
}

}  // namespace wgrad::train
