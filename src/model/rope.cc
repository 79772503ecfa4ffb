#include "model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "wgrad/error.h"

namespace wgrad::model {

using nlohmann::json;

double yarn_attention_factor(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

namespace {

constexpr int64_t kMostPositions = int64_t{1} << 30;

RopeScaling scaling_kind(ConfigReader& reader) {
  constexpr std::pair<std::string_view, RopeScaling> kKinds[] = {
      {"default", RopeScaling::kNone},    {"linear", RopeScaling::kLinear},
      {"dynamic", RopeScaling::kDynamic}, {"llama3", RopeScaling::kLlama3},
      {"yarn", RopeScaling::kYarn},       {"longrope", RopeScaling::kLongRope},
      {"su", RopeScaling::kLongRope}};
  const std::string older = reader.text("type", "default");
  const std::string kind = reader.text("rope_type", older);
  for (const auto& [name, scaling] : kKinds) {
    if (name == kind) return scaling;
  }
  throw input_error(reader.where(), fmt::format("rope_type is \"{}\"", kind),
                    "default, linear, dynamic, llama3, yarn or longrope");
}

std::vector<double> read_factors(ConfigReader& reader, std::string_view field, int64_t pairs) {
  const std::string expected = fmt::format("a list of {} numbers greater than 0", pairs);
  const json* value = reader.find(field);
  if (value == nullptr)
    throw input_error(reader.where(), fmt::format("{} is missing", field), expected);
  const auto good = [](const json& x) { return x.is_number() && x.get<double>() > 0; };
  if (!value->is_array() || value->size() != static_cast<size_t>(pairs) ||
      !std::all_of(value->begin(), value->end(), good)) {
    throw input_error(reader.where(), fmt::format("{} is {}", field, brief(*value)), expected);
  }
  return value->get<std::vector<double>>();
}

void read_llama3(ConfigReader& reader, RopeConfig& rope) {
  rope.low_freq_factor = reader.positive("low_freq_factor");
  rope.high_freq_factor = reader.positive("high_freq_factor");
  if (rope.high_freq_factor > rope.low_freq_factor) return;
  throw input_error(reader.where(),
                    fmt::format("high_freq_factor is {}, low_freq_factor is {}",
                                rope.high_freq_factor, rope.low_freq_factor),
                    "the first larger than the second");
}

void read_yarn(ConfigReader& reader, RopeConfig& rope) {
  rope.beta_fast = reader.positive("beta_fast", 32.0);
  rope.beta_slow = reader.positive("beta_slow", 1.0);
  rope.truncate = reader.flag("truncate", true);
  const auto number = [&](const char* field) {
    const json* value = reader.find(field);
    if (value != nullptr && !(value->is_number() && value->get<double>() >= 0)) {
      throw input_error(reader.where(), fmt::format("{} is {}", field, brief(*value)),
                        "a number from 0 up");
    }
    return value == nullptr ? 0.0 : value->get<double>();
  };
  const double scale = number("mscale"), scale_all = number("mscale_all_dim");
  const double standard = scale > 0 && scale_all > 0
                              ? yarn_attention_factor(rope.factor, scale) /
                                    yarn_attention_factor(rope.factor, scale_all)
                              : yarn_attention_factor(rope.factor);
  rope.attention_factor = reader.positive("attention_factor", standard);
}

void read_longrope(ConfigReader& reader, RopeConfig& rope) {
  rope.short_factors = read_factors(reader, "short_factor", rope.rotary_dim / 2);
  rope.long_factors = read_factors(reader, "long_factor", rope.rotary_dim / 2);
  const double context = static_cast<double>(rope.original_max_positions);
  const double standard =
      rope.factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(rope.factor) / std::log(context));
  rope.attention_factor = reader.positive("attention_factor", standard);
}

void read_rotary_dim(ConfigReader& reader, int64_t head_dim, bool partial, RopeConfig& rope) {
  if (!partial) {
    reader.must_be("partial_rotary_factor", 1.0);
    return;
  }
  if (!reader.has("partial_rotary_factor")) return;
  const double share = reader.positive("partial_rotary_factor", {}, 1.0);
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0) return;
  throw input_error(reader.where(),
                    fmt::format("partial_rotary_factor is {}: {} of {} elements of a head", share,
                                rope.rotary_dim, head_dim),
                    "an even number of them");
}

/// Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones kept.
double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto context = static_cast<double>(rope.original_max_positions);
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// YaRN: pairs that turn often in the original context are kept, those that turn less than
/// beta_slow times are stretched by `factor`, with a ramp over the pairs in between.
double yarn_frequency(const RopeConfig& rope, int64_t pair, double frequency) {
  const auto dim = static_cast<double>(rope.rotary_dim);
  const auto pair_of = [&](double rotations) {
    const double wavelength = static_cast<double>(rope.original_max_positions) / rotations;
    return dim * std::log(wavelength / (2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // transformers avoids the division by zero so
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * ramp + frequency * (1.0 - ramp);
}

/// The base for a row of `length` tokens (NTK-aware scaling).
double dynamic_theta(const RopeConfig& rope, int64_t length) {
  const auto dim = static_cast<double>(rope.rotary_dim);
  const double longer =
      static_cast<double>(length) / static_cast<double>(rope.original_max_positions);
  const double stretch = rope.factor * longer - (rope.factor - 1.0);
  return rope.theta * std::pow(stretch, dim / (dim - 2.0));
}

}  // namespace

int64_t RopeConfig::regime(int64_t row_length) const {
  if (row_length <= original_max_positions) return 0;
  if (scaling == RopeScaling::kLongRope) return 1;
  return scaling == RopeScaling::kDynamic ? row_length : 0;
}

RopeConfig read_rope_object(const json& object, const std::string& where, int64_t max_positions,
                            int64_t head_dim, bool partial, RopeConfig rope) {
  ConfigReader reader(object, where);
  rope.scaling = scaling_kind(reader);
  rope.theta = reader.positive("rope_theta", rope.theta);
  read_rotary_dim(reader, head_dim, partial, rope);
  const bool longrope = rope.scaling == RopeScaling::kLongRope;
  const int64_t within =
      reader.size("original_max_position_embeddings", kMostPositions, max_positions);
  if (rope.original_max_positions == 0) rope.original_max_positions = within;
  // transformers knows it of these alone; elsewhere the field is a note.
  if (rope.scaling == RopeScaling::kDynamic) rope.original_max_positions = max_positions;
  const double lengthening =
      static_cast<double>(max_positions) / static_cast<double>(rope.original_max_positions);
  if (rope.scaling == RopeScaling::kNone) {
    reader.ignore({"factor"});
  } else if (longrope || (rope.scaling == RopeScaling::kYarn && !reader.has("factor"))) {
    rope.factor = reader.positive("factor", lengthening);
  } else {
    rope.factor = reader.positive("factor");
  }
  if (rope.scaling == RopeScaling::kLlama3) read_llama3(reader, rope);
  if (rope.scaling == RopeScaling::kYarn) read_yarn(reader, rope);
  if (longrope) read_longrope(reader, rope);
  if (rope.scaling == RopeScaling::kDynamic && rope.rotary_dim < 4) {
    throw input_error(where, fmt::format("{} elements of a head turn", rope.rotary_dim),
                      "at least 4 for dynamic scaling");
  }
  reader.refuse_rest();
  return rope;
}

RopeConfig read_rope(ConfigReader& reader, int64_t max_positions, int64_t head_dim, bool partial) {
  RopeConfig rope;
  rope.rotary_dim = head_dim;
  rope.theta = reader.positive("rope_theta", rope.theta);
  read_rotary_dim(reader, head_dim, partial, rope);
  // Where it stands beside the object it counts more than within.
  if (reader.has("original_max_position_embeddings")) {
    rope.original_max_positions = reader.size("original_max_position_embeddings", kMostPositions);
  }
  const json* newer = reader.find("rope_parameters");
  const json* older = reader.find("rope_scaling");
  if (newer != nullptr && older != nullptr && *newer != *older) {
    throw input_error(reader.where(), "rope_parameters and rope_scaling differ", "one of them");
  }
  if (newer == nullptr && older == nullptr) return rope;
  const std::string where = reader.where() + (newer ? ": rope_parameters" : ": rope_scaling");
  return read_rope_object(newer ? *newer : *older, where, max_positions, head_dim, partial, rope);
}

std::vector<double> rope_inverse_frequencies(const RopeConfig& rope, int64_t row_length) {
  const int64_t regime = rope.regime(row_length);
  const bool stretched = rope.scaling == RopeScaling::kDynamic && regime != 0;
  const double theta = stretched ? dynamic_theta(rope, row_length) : rope.theta;
  const std::vector<double>& factors = regime == 0 ? rope.short_factors : rope.long_factors;
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < rope.rotary_dim / 2; ++pair) {
    const double exponent = static_cast<double>(2 * pair) / static_cast<double>(rope.rotary_dim);
    double frequency = std::pow(theta, -exponent);
    switch (rope.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kDynamic:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = llama3_frequency(rope, frequency);
        break;
      case RopeScaling::kYarn:
        frequency = yarn_frequency(rope, pair, frequency);
        break;
      case RopeScaling::kLongRope:
        frequency /= factors[static_cast<size_t>(pair)];
        break;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

void append_rope_table(const RopeConfig& rope, int64_t row_length, int64_t positions,
                       std::vector<float>& table) {
  const std::vector<double> frequencies = rope_inverse_frequencies(rope, row_length);
  table.reserve(table.size() + static_cast<size_t>(positions * rope.rotary_dim));
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(static_cast<float>(rope.attention_factor * std::cos(angle)));
      table.push_back(static_cast<float>(rope.attention_factor * std::sin(angle)));
    }
  }
}

}  // namespace wgrad::model
