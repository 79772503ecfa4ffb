#include "train/weight_bytes.h"

#include "model/model.h"
#include "ops/linear.h"
#include "train/device_choice.h"

namespace wgrad::train {
namespace {

int64_t planned_bytes(const model::ModelConfig& config, ops::WeightPrecision precision,
                      ComputeType compute) {
  DeviceChoice gpu = usual_gpus(0).front();
  gpu.adapter.limits.max_buffer_size = 0;  // how a large one is split is no matter here
  const std::unique_ptr<Context> ctx = plan_context(gpu, compute);
  std::vector<ops::Weight> matrices;
  std::vector<Tensor> vectors;
  for (const model::Parameters::Spec& spec : model::checkpoint_tensors(config)) {
    const std::string& name = spec.name;
    if (spec.shape.size() == 1) {
      vectors.push_back(ctx->allocate(spec.shape, DType::kF32, "weights/" + name));
      continue;
    }
    const bool table = name == "model.embed_tokens.weight" || name == "lm_head.weight";
    matrices.push_back(ops::load_weight(*ctx, name, spec.shape[0], spec.shape[1],
                                        table ? ops::WeightPrecision::kCompute : precision, {}));
  }
  return ctx->bytes_by_label().at("weights");
}

}  // namespace

WeightBytes weight_bytes(const model::ModelConfig& config) {
  const auto bytes = [&](ops::WeightPrecision precision, ComputeType compute) {
    return planned_bytes(config, precision, compute);
  };
  using ops::WeightPrecision;
  return {bytes(WeightPrecision::kCompute, ComputeType::kF32),
          bytes(WeightPrecision::kCompute, ComputeType::kF16),
          bytes(WeightPrecision::kNF4, ComputeType::kF32),
          bytes(WeightPrecision::kNF4, ComputeType::kF16)};
}

}  // namespace wgrad::train
