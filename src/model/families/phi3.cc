// Phi-3, Phi-3.5 and Phi-4-mini: q, k and v in one matrix, gate and up in another; longrope.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "wgrad/error.h"

namespace wgrad::model {

void configure_phi3(ConfigReader& reader, ModelConfig& config) {
  constexpr int64_t kMostWindow = int64_t{1} << 30;
  config.fused_qkv = config.fused_gate_up = true;
  if (reader.has("sliding_window")) {
    config.windows.assign(static_cast<size_t>(config.layers),
                          reader.size("sliding_window", kMostWindow));
  }
  reader.must_be("resid_pdrop", 0.0);
  reader.must_be("embd_pdrop", 0.0);
  // Notes of other models that share this family's code.
  reader.must_be("full_attn_mod", 1);
  reader.must_be("interpolate_factor", 1);
  config.ropes = {read_rope(reader, config.max_positions, config.head_dim, true)};
  const RopeScaling scaling = config.ropes[0].scaling;
  if (scaling != RopeScaling::kNone && scaling != RopeScaling::kLongRope) {
    throw input_error(reader.where(), "the rope_type is neither default nor longrope",
                      "one of those, which are all that this family has");
  }
}

}  // namespace wgrad::model
