#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/config_reader.h"

namespace wgrad::model {

/// Reads rope_parameters (transformers 5), or rope_theta and rope_scaling (before).
RopeConfig read_rope(ConfigReader& reader, int64_t max_positions);

}  // namespace wgrad::model
