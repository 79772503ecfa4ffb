// Blocks of 256: sub-blocks with a scale (and a minimum) each, searched for, and these quantised in
// turn. The floats' operations and their order are those of ggml's reference quantisers.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "io/quantize_blocks.h"

namespace wgrad::io {
namespace {

constexpr int kBlock = 256;
constexpr float kNothing = 1e-15f;  ///< scales below this count as zero

/// Nearest integer, ties to even, of a value below 2^22: adding 1.5 * 2^23 rounds it in the sum.
int nearest(float value) {
  const float sum = value + 12582912.0f;
  std::int32_t bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  return (bits & 0x007fffff) - 0x00400000;
}

/// x ~ scale * code + minimum with codes from 0 to `most`.
struct Line {
  float scale;
  float minimum;
};

/// How the search for a line goes on from the plain one.
struct Search {
  int most;
  float first;  ///< by how much the first try's range of codes differs from `most`
  int tries;    ///< each a tenth of a code more
};

constexpr int kSub = 32;
using Codes = std::array<std::uint8_t, kSub>;

void assign(const float* x, float inverse, float minimum, int most, Codes& codes) {
  for (int i = 0; i < kSub; ++i) {
    // The product can be infinite or not a number where the range is next to nothing.
    const float exact = inverse * (x[i] - minimum);
    const int code = exact > 0 ? nearest(std::min(exact, static_cast<float>(most))) : 0;
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code);
  }
}

float weighted_error(const float* x, const float* weights, const Codes& codes, Line line) {
  float error = 0;
  for (int i = 0; i < kSub; ++i) {
    const float code = codes[static_cast<std::size_t>(i)];
    const float difference = line.scale * code + line.minimum - x[i];
    error += weights[i] * (difference * difference);
  }
  return error;
}

/// The weighted least squares line for these codes, its minimum at most 0; false where there is
/// none.
bool fit(const float* x, const float* weights, const Codes& codes, float sum_w, float sum_x,
         Line& line) {
  float sum_l = 0, sum_l2 = 0, sum_xl = 0;
  for (int i = 0; i < kSub; ++i) {
    const float code = codes[static_cast<std::size_t>(i)];
    const float product = weights[i] * code;
    sum_l += product;
    sum_l2 += product * code;
    sum_xl += product * x[i];
  }
  const float determinant = sum_w * sum_l2 - sum_l * sum_l;
  if (!(determinant > 0)) return false;
  line.scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
  line.minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
  if (line.minimum > 0) {
    line.minimum = 0;
    line.scale = sum_xl / sum_l2;
  }
  return true;
}

/// Tries several ranges of codes from the best minimum so far, each with its least squares line,
/// and keeps the line with the smallest weighted error.
Line search_line(const float* x, const float* weights, const Search& search, Codes& codes) {
  float min = x[0], max = x[0];
  float sum_w = weights[0];
  float sum_x = sum_w * x[0];
  for (int i = 1; i < kSub; ++i) {
    min = std::min(min, x[i]);
    max = std::max(max, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  min = std::min(min, 0.0f);
  if (max == min) {
    codes.fill(0);
    return {0, min};
  }
  const float most = static_cast<float>(search.most);
  const float inverse = most / (max - min);
  Line best{1 / inverse, min};
  assign(x, inverse, min, search.most, codes);
  float best_error = weighted_error(x, weights, codes, best);
  for (int t = 0; t <= search.tries; ++t) {
    const float codes_tried = search.first + 0.1f * static_cast<float>(t) + most;
    Codes candidate;
    assign(x, codes_tried / (max - best.minimum), best.minimum, search.most, candidate);
    Line line;
    if (!fit(x, weights, candidate, sum_w, sum_x, line)) continue;
    const float error = weighted_error(x, weights, candidate, line);
    if (!(error < best_error)) continue;
    codes = candidate;
    best_error = error;
    best = line;
  }
  return best;
}

void weigh(const float* x, float* weights) {
  float squares = 0;
  for (int i = 0; i < kSub; ++i) squares += x[i] * x[i];
  const float spread = std::sqrt(squares / kSub);
  for (int i = 0; i < kSub; ++i) weights[i] = spread + std::fabs(x[i]);
}

constexpr int kSubs = kBlock / kSub;

/// The eight scales and minima of a block, in six bits each, and the codes for them.
struct ScaledBlock {
  std::array<Codes, kSubs> codes;
  std::array<int, kSubs> scales, minima;
};

int six_bits(float inverse, float value) {
  return std::min(63, static_cast<int>(static_cast<std::uint8_t>(nearest(inverse * value))));
}

/// Writes d and dmin, the two halves that all sub-blocks share.
ScaledBlock scale_block(const float* x, const Search& search, std::uint8_t* block) {
  ScaledBlock result;
  std::array<float, kSubs> scales, minima;  // minima as what is taken away
  float weights[kSub];
  for (std::size_t j = 0; j < kSubs; ++j) {
    weigh(x + j * kSub, weights);
    const Line line = search_line(x + j * kSub, weights, search, result.codes[j]);
    scales[j] = line.scale;
    minima[j] = -line.minimum;
  }
  const float scale = std::max(0.0f, *std::max_element(scales.begin(), scales.end()));
  const float minimum = std::max(0.0f, *std::max_element(minima.begin(), minima.end()));
  const float inverse_scale = scale > 0 ? 63.0f / scale : 0.0f;
  const float inverse_minimum = minimum > 0 ? 63.0f / minimum : 0.0f;
  for (std::size_t j = 0; j < kSubs; ++j) {
    result.scales[j] = six_bits(inverse_scale, scales[j]);
    result.minima[j] = six_bits(inverse_minimum, minima[j]);
  }
  const float d = store_half(block, scale / 63.0f);
  const float dmin = store_half(block + 2, minimum / 63.0f);
  for (std::size_t j = 0; j < kSubs; ++j) {
    const float step = d * static_cast<float>(result.scales[j]);
    if (step == 0) continue;
    const float offset = dmin * static_cast<float>(result.minima[j]);
    for (std::size_t i = 0; i < kSub; ++i) {
      const int code = nearest((x[j * kSub + i] + offset) / step);
      result.codes[j][i] = static_cast<std::uint8_t>(std::clamp(code, 0, search.most));
    }
  }
  return result;
}

/// The inverse of dequantize.cc's scale_and_min.
void pack_scales(const ScaledBlock& block, std::uint8_t* out) {
  for (std::size_t j = 0; j < 4; ++j) {
    const int scale = block.scales[j + 4], minimum = block.minima[j + 4];
    out[j] = static_cast<std::uint8_t>(block.scales[j] | (scale >> 4) << 6);
    out[j + 4] = static_cast<std::uint8_t>(block.minima[j] | (minimum >> 4) << 6);
    out[j + 8] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
  }
}

void pack_nibbles(const ScaledBlock& block, std::uint8_t* out) {
  for (std::size_t j = 0; j < kSubs; j += 2) {
    for (std::size_t i = 0; i < kSub; ++i) {
      *out++ =
          static_cast<std::uint8_t>((block.codes[j][i] & 15) | (block.codes[j + 1][i] & 15) << 4);
    }
  }
}

constexpr int kFine = 16;  ///< Q6_K's sub-blocks
constexpr int kFines = kBlock / kFine;

int signed_code(float inverse, float value) {
  return std::clamp(nearest(inverse * value), -32, 31);
}

/// The scale of 16 values in codes from -32 to 31, searched for as in search_line with weights x^2.
float search_scale(const float* x, std::int8_t* codes) {
  float most = 0, extreme = 0;
  for (int i = 0; i < kFine; ++i) {
    if (std::fabs(x[i]) > most) {
      most = std::fabs(x[i]);
      extreme = x[i];
    }
  }
  if (most < kNothing) {
    std::fill(codes, codes + kFine, std::int8_t{0});
    return 0;
  }
  float sum_xl = 0, sum_l2 = 0;
  const auto correlate = [&](float inverse) {
    sum_xl = sum_l2 = 0;
    for (int i = 0; i < kFine; ++i) {
      const auto code = static_cast<float>(signed_code(inverse, x[i]));
      const float weight = x[i] * x[i];
      sum_xl += weight * x[i] * code;
      sum_l2 += weight * code * code;
    }
  };
  const auto keep = [&](float inverse) {
    for (int i = 0; i < kFine; ++i) {
      codes[i] = static_cast<std::int8_t>(signed_code(inverse, x[i]) + 32);
    }
  };
  const float first = -32.0f / extreme;
  correlate(first);
  keep(first);
  float scale = sum_l2 != 0 ? sum_xl / sum_l2 : 0.0f;
  float best = scale * sum_xl;
  for (int t = -9; t <= 9; ++t) {
    if (t == 0) continue;
    const float inverse = -(32.0f + 0.1f * static_cast<float>(t)) / extreme;
    correlate(inverse);
    if (!(sum_l2 > 0 && sum_xl * sum_xl > best * sum_l2)) continue;
    keep(inverse);
    scale = sum_xl / sum_l2;
    best = scale * sum_xl;
  }
  return scale;
}

void pack_q6_k(const std::int8_t* codes, std::uint8_t* block) {
  for (int half = 0; half < 2; ++half) {
    const std::int8_t* from = codes + half * 128;
    std::uint8_t* low = block + half * 64;
    std::uint8_t* high = block + 128 + half * 32;
    for (int i = 0; i < 32; ++i) {
      low[i] = static_cast<std::uint8_t>((from[i] & 15) | (from[i + 64] & 15) << 4);
      low[i + 32] = static_cast<std::uint8_t>((from[i + 32] & 15) | (from[i + 96] & 15) << 4);
      high[i] = static_cast<std::uint8_t>(from[i] >> 4 | (from[i + 32] >> 4) << 2 |
                                          (from[i + 64] >> 4) << 4 | (from[i + 96] >> 4) << 6);
    }
  }
}

}  // namespace

void quantize_q4_k(const float* in, std::uint8_t* block) {
  const ScaledBlock scaled = scale_block(in, {.most = 15, .first = -1.0f, .tries = 20}, block);
  pack_scales(scaled, block + 4);
  pack_nibbles(scaled, block + 16);
}

void quantize_q5_k(const float* in, std::uint8_t* block) {
  const ScaledBlock scaled = scale_block(in, {.most = 31, .first = -0.5f, .tries = 15}, block);
  pack_scales(scaled, block + 4);
  std::uint8_t* high = block + 16;
  for (std::size_t i = 0; i < kSub; ++i) {
    int bits = 0;
    for (std::size_t j = 0; j < kSubs; ++j) bits |= scaled.codes[j][i] >> 4 << j;
    high[i] = static_cast<std::uint8_t>(bits);
  }
  pack_nibbles(scaled, block + 48);
}

void quantize_q6_k(const float* in, std::uint8_t* block) {
  constexpr std::size_t kBytes = 210;
  std::int8_t codes[kBlock];
  float scales[kFines];
  float extreme = 0;
  for (int j = 0; j < kFines; ++j) {
    scales[j] = search_scale(in + j * kFine, codes + j * kFine);
    if (std::fabs(scales[j]) > std::fabs(extreme)) extreme = scales[j];
  }
  if (std::fabs(extreme) < kNothing) {
    std::memset(block, 0, kBytes);
    return;
  }
  const float inverse = -128.0f / extreme;
  const float d = store_half(block + 208, 1 / inverse);
  for (int j = 0; j < kFines; ++j) {
    const auto scale = static_cast<std::int8_t>(std::min(127, nearest(inverse * scales[j])));
    block[192 + j] = static_cast<std::uint8_t>(scale);
    const float step = d * static_cast<float>(scale);
    if (step == 0) continue;
    for (int i = j * kFine; i < (j + 1) * kFine; ++i) {
      codes[i] = static_cast<std::int8_t>(std::clamp(nearest(in[i] / step), -32, 31) + 32);
    }
  }
  pack_q6_k(codes, block);
}

}  // namespace wgrad::io
