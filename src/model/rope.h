#pragma once

#include <cstdint>
#include <vector>

#include "model/config_reader.h"

namespace wgrad::model {

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,    ///< every frequency divided by `factor`
  kDynamic,   ///< a larger base for rows beyond the original context, by their length
  kLlama3,    ///< long wavelengths divided by `factor`, short ones kept, smooth in between
  kYarn,      ///< the same by the number of rotations in the original context
  kLongRope,  ///< each frequency divided by a factor of its own: short or long rows have others
};

/// The rotary embedding of some layers, as transformers defines it.
struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t rotary_dim = 0;  ///< of each head: so many of its first elements turn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;       ///< kLlama3
  double beta_fast = 32.0, beta_slow = 1.0;                   ///< kYarn
  bool truncate = true;                                       ///< kYarn: whole pairs bound the ramp
  std::vector<double> short_factors = {}, long_factors = {};  ///< kLongRope: one a pair
  /// kLlama3, kYarn, kLongRope: of the first training. kDynamic: rows up to here are not scaled.
  int64_t original_max_positions = 0;
  double attention_factor = 1.0;  ///< multiplies cosines and sines

  /// Which frequencies a row of so many tokens has: two rows have the same where this is equal.
  int64_t regime(int64_t row_length) const;
};

/// Reads rope_parameters (transformers 5), or rope_theta and rope_scaling (before). `partial`: a
/// part of each head may stay as it is (partial_rotary_factor).
RopeConfig read_rope(ConfigReader& reader, int64_t max_positions, int64_t head_dim, bool partial);
/// Reads one object of rope_parameters; what it lacks is as in `rope`.
RopeConfig read_rope_object(const nlohmann::json& object, const std::string& where,
                            int64_t max_positions, int64_t head_dim, bool partial, RopeConfig rope);

/// YaRN's attention factor where the config names none: a larger magnitude for longer contexts
/// (Peng et al. 2023, section 3.4), in the part `weight`.
double yarn_attention_factor(double factor, double weight = 1.0);

/// The frequencies of a row of so many tokens, in double: rotary_dim / 2 values.
std::vector<double> rope_inverse_frequencies(const RopeConfig& rope, int64_t row_length);
/// Appends (cos, sin) of position * frequency, times the attention factor, for `positions`
/// positions of rows of `row_length` tokens: [positions, rotary_dim / 2, 2]; see ops/rope.h.
void append_rope_table(const RopeConfig& rope, int64_t row_length, int64_t positions,
                       std::vector<float>& table);

}  // namespace wgrad::model
