#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint_source.h"
#include "model/config.h"
#include "model/parameters.h"
#include "ops/context.h"
#include "ops/linear.h"

namespace wgrad::model {

struct Linear {
  ops::Weight weight;
  Tensor bias;                    ///< empty where the layer has none
  Tensor grad_weight, grad_bias;  ///< only where it is trained
};

struct Norm {
  Tensor weight;
  Tensor grad;  ///< only where it is trained
};

struct Layer {
  std::array<Norm, kNormCount> norms;            ///< empty where ModelConfig::norms() lacks one
  std::array<Linear, kProducts.size()> linears;  ///< the products

  const Norm& operator[](NormKind kind) const { return norms[static_cast<size_t>(kind)]; }
  Norm& operator[](NormKind kind) { return norms[static_cast<size_t>(kind)]; }
  const Linear& operator[](Projection p) const { return linears[static_cast<size_t>(p)]; }
  Linear& operator[](Projection p) { return linears[static_cast<size_t>(p)]; }
};

/// A model's weights on a device. Owns them, and the mapped file where weights are used in place.
struct Model {
  ModelConfig config;
  ops::Weight embedding;
  Tensor grad_embedding;  ///< only where it is trained
  std::vector<Layer> layers;
  Norm final_norm;
  ops::Weight output;  ///< lm_head; shares the embedding's memory where they are tied
  Tensor grad_output;
  Parameters parameters;  ///< what is trained; empty while the model is frozen
  std::shared_ptr<const io::TensorSource> source;

  bool trainable() const { return !parameters.empty(); }
  int64_t weight_bytes() const;
};

struct LoadOptions {
  /// Of the blocks' linear weights. With kNF4, the embedding and the output layer are kCompute.
  ops::WeightPrecision precision = ops::WeightPrecision::kF32;
  /// All weights as f32 parameters with gradients (full fine-tuning); `precision` must be kF32.
  bool trainable = false;
};

/// Loads a Hugging Face folder or a .gguf file. Weights stream to the device row by row; f32
/// weights of a CPU context stay where they are mapped. Missing, unknown and misshapen tensors are
/// input errors that name file, tensor and both shapes.
Model load_model(Context& ctx, const std::filesystem::path& path, const LoadOptions& options);
/// The same from an opened source.
Model load_model(Context& ctx, ModelConfig config, std::shared_ptr<const io::TensorSource> source,
                 const LoadOptions& options);

/// The model with those of the parameters that have the name of one of its tensors in the place of
/// these, their gradients included. The other weights are shared.
Model replaced(Context& ctx, Model model, const Parameters& parameters);

/// The names and shapes of a checkpoint of this config, in the order of Hugging Face.
std::vector<Parameters::Spec> checkpoint_tensors(const ModelConfig& config);

}  // namespace wgrad::model
