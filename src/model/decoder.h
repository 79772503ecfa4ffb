#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/adapter.h"
#include "model/batch.h"
#include "model/block.h"
#include "model/model.h"
#include "ops/context.h"

namespace wgrad::model {

enum class Recompute : uint8_t {
  kNone,   ///< keep what the backward pass needs
  kBlock,  ///< keep each block's input alone and run the block again: slower, far less memory
};

struct DecoderSettings {
  Recompute recompute = Recompute::kNone;
  uint64_t dropout_seed = 0;
  /// Positions that the rotary table covers (the longest row); 0: all that the model knows.
  int64_t max_positions = 0;
};

/// Which draw of the dropout masks a pass uses: the same numbers give the same masks.
struct StepKey {
  uint32_t step = 0;
  uint32_t micro_batch = 0;
};

/// The transformer, forward and backward. Borrows context, model and adapter (null: none), which
/// must outlive it. With an adapter the model is frozen; without one gradients go to the model's
/// own parameters, if it was loaded trainable.
class Decoder {
 public:
  Decoder(Context& ctx, const Model& model, const Adapter* adapter,
          const DecoderSettings& settings);

  /// Adds the negative log-likelihoods of the counted tokens to loss_sum (f32 [1], unscaled) and
  /// their gradients, times loss_scale (1 / the counted tokens of the whole step), to the
  /// gradients of what is trained.
  void forward_backward(const Batch& batch, float loss_scale, StepKey key, const Tensor& loss_sum);
  /// The loss of each counted token, f32 [counted]; dropout is off. Empty where nothing counts.
  Tensor losses(const Batch& batch);
  /// Logits of all positions, f32 [tokens, vocab]; dropout is off. For short inputs.
  Tensor logits(const Batch& batch);
  /// Generation: `tokens` follow what the caches hold (one a layer, which must have room for
  /// them); logits of the last position, f32 [1, vocab].
  Tensor next_logits(const Batch& tokens, std::vector<KeyValueCache>& caches);

  int64_t max_positions() const { return max_positions_; }
  const Model& model() const { return model_; }

 private:
  void check_positions(const Batch& batch) const;
  Tensor embed(const Batch& batch);
  Tensor run_blocks(const Batch& batch, std::vector<KeyValueCache>* caches);
  Tensor final_norm(const Tensor& hidden, Tensor* inv_rms);
  Tensor head_backward(const Batch& batch, const Tensor& hidden, float loss_scale,
                       const Tensor& loss_sum);
  void embed_backward(const Batch& batch, const Tensor& grad_hidden);
  /// The first layer with something to train; below it nothing runs backward.
  int64_t first_trained_layer() const;

  Context& ctx_;
  const Model& model_;
  const Adapter* adapter_;
  DecoderSettings settings_;
  int64_t max_positions_;
  Tensor rope_table_;
};

}  // namespace wgrad::model
