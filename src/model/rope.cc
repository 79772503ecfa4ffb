#include "model/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "wgrad/error.h"

namespace wgrad::model {

using nlohmann::json;

namespace {

RopeScaling scaling_kind(ConfigReader& reader) {
  const std::string older = reader.text("type", "default");
  const std::string kind = reader.text("rope_type", older);
  if (kind == "default") return RopeScaling::kNone;
  if (kind == "linear") return RopeScaling::kLinear;
  if (kind == "llama3") return RopeScaling::kLlama3;
  throw input_error(reader.where(), fmt::format("rope_type is \"{}\"", kind),
                    "default, linear or llama3");
}

void read_scaling(const json& object, const std::string& where, int64_t max_positions,
                  RopeConfig& rope) {
  constexpr int64_t kMostPositions = int64_t{1} << 30;
  ConfigReader reader(object, where);
  rope.scaling = scaling_kind(reader);
  rope.theta = reader.positive("rope_theta", rope.theta);
  reader.must_be("partial_rotary_factor", 1.0);
  if (rope.scaling != RopeScaling::kNone) rope.factor = reader.positive("factor");
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = reader.positive("low_freq_factor");
    rope.high_freq_factor = reader.positive("high_freq_factor");
    rope.original_max_positions =
        reader.size("original_max_position_embeddings", kMostPositions, max_positions);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      throw input_error(where,
                        fmt::format("high_freq_factor is {}, low_freq_factor is {}",
                                    rope.high_freq_factor, rope.low_freq_factor),
                        "the first larger than the second");
    }
  }
  reader.ignore({"original_max_position_embeddings"});
  if (rope.scaling == RopeScaling::kNone) reader.ignore({"factor"});
  reader.refuse_rest();
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

}  // namespace

RopeConfig read_rope(ConfigReader& reader, int64_t max_positions) {
  RopeConfig rope;
  rope.theta = reader.positive("rope_theta", rope.theta);
  const json* newer = reader.find("rope_parameters");
  const json* older = reader.find("rope_scaling");
  if (newer != nullptr && older != nullptr && *newer != *older) {
    throw input_error(reader.where(), "rope_parameters and rope_scaling differ", "one of them");
  }
  if (newer != nullptr) {
    read_scaling(*newer, reader.where() + ": rope_parameters", max_positions, rope);
  } else if (older != nullptr) {
    read_scaling(*older, reader.where() + ": rope_scaling", max_positions, rope);
  }
  return rope;
}

std::vector<double> rope_inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = std::pow(rope.theta, -exponent);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        frequencies.push_back(frequency);
        break;
      case RopeScaling::kLinear:
        frequencies.push_back(frequency / rope.factor);
        break;
      case RopeScaling::kLlama3:
        frequencies.push_back(llama3_frequency(rope, frequency));
        break;
    }
  }
  return frequencies;
}

std::vector<float> rope_table(const ModelConfig& config, int64_t positions) {
  const std::vector<double> frequencies = rope_inverse_frequencies(config.rope, config.head_dim);
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions * config.head_dim));
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace wgrad::model
