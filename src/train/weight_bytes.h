#pragma once

#include <cstdint>

#include "model/config.h"

namespace wgrad::train {

/// What a model's weights take of a GPU's memory, by the same count as a run's plan.
struct WeightBytes {
  int64_t f32 = 0, f16 = 0;      ///< with f32 and with f16 operands
  int64_t nf4 = 0, nf4_f16 = 0;  ///< with --method qlora: the embeddings in f32, in f16
};
WeightBytes weight_bytes(const model::ModelConfig& config);

}  // namespace wgrad::train
