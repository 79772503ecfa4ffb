#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/adapter.h"
#include "model/batch.h"
#include "model/block.h"
#include "model/model.h"
#include "ops/context.h"
#include "ops/loss.h"

namespace wgrad::model {

enum class Recompute : uint8_t {
  kNone,   ///< keep what the backward pass needs
  kBlock,  ///< keep each block's input alone and run the block again: slower, far less memory
};

struct DecoderSettings {
  Recompute recompute = Recompute::kNone;
  uint64_t dropout_seed = 0;
  /// Positions that the rotary table covers from the start (the longest row); 0: it grows with the
  /// rows that come. Never more than the model knows.
  int64_t max_positions = 0;
};

/// Which draw of the dropout masks a pass uses: the same numbers give the same masks.
struct StepKey {
  uint32_t step = 0;
  uint32_t micro_batch = 0;
};

/// The transformer, forward and backward. Borrows context and adapter (null: none), which must
/// outlive it, and shares the model's weights. With an adapter the model is frozen, but for the
/// modules that the adapter saves; without one gradients go to the model's own parameters, which
/// must then have been loaded trainable.
class Decoder {
 public:
  Decoder(Context& ctx, const Model& model, const Adapter* adapter,
          const DecoderSettings& settings);

  /// Adds the negative log-likelihoods of the counted tokens to loss_sum (f32 [1], unscaled) and
  /// their gradients, times loss_scale (1 / the counted tokens of the whole step), to the
  /// gradients of what is trained. A batch with nothing counted adds nothing.
  void forward_backward(const Batch& batch, float loss_scale, StepKey key, const Tensor& loss_sum);
  /// The loss of each counted token, f32 [counted]; dropout is off. Empty where nothing counts.
  Tensor losses(const Batch& batch);
  /// Logits of all positions, f32 [tokens, vocab]; dropout is off. For short inputs.
  Tensor logits(const Batch& batch);
  /// Generation: `batch` is one row whose tokens follow what the caches (one a layer, with room for
  /// them) hold. Logits of the last position, f32 [1, vocab].
  Tensor next_logits(const Batch& batch, std::vector<KeyValueCache>& caches);

 private:
  /// Makes the rotary tables reach the batch's positions; an input error where the model does not.
  std::vector<RopeView> cover_positions(const Batch& batch);
  /// `saved` receives the rows of an adapted table's A [T, rank], where it is given and needed.
  Tensor embed(const Batch& batch, Tensor* saved);
  void backward_embed(const Batch& batch, const Tensor& saved, const Tensor& grad);
  /// The adapter's factors in f16 as they are now; empty where they are not used.
  std::span<const ops::LoraHalves> pack_adapter();
  /// The lengths of DoRA as they are now; empty where they are not used.
  std::span<const ops::DoraFactors> measure_rows();
  /// The residual stream after the last block, without keeping anything for a backward pass.
  Tensor run_blocks(const Batch& batch, const AdapterPass& pass,
                    std::vector<KeyValueCache>* caches);
  /// The adapter's state for a pass that trains nothing.
  AdapterPass frozen_pass();
  Tensor final_norm(const Tensor& x, Tensor& inv_rms);
  AdaptedLinear output(const AdapterPass& pass, uint64_t chunk) const;
  /// Logits of the rows of a residual stream.
  Tensor output_logits(const Tensor& x, const AdapterPass& pass);
  /// For linear_cross_entropy(); with `trains`, its backward pass too.
  ops::OutputLayer output_layer(const AdapterPass& pass, bool trains) const;
  /// Loss and its gradient by the residual stream [T, hidden] after the last block.
  Tensor head_forward_backward(const Batch& batch, const Tensor& x, const AdapterPass& pass,
                               float loss_scale, const Tensor& loss_sum);
  Block block(int64_t i) const { return Block(ctx_, model_, adapter_, i); }
  bool trains_embedding() const;
  /// The first block of which anything below or in it is trained; layers() where there is none.
  int64_t first_trained() const;
  int64_t layers() const { return model_.config.layers; }

  Context& ctx_;
  const Model model_;
  const Adapter* adapter_;
  DecoderSettings settings_;
  Linear output_;
  std::vector<RopeTable> rope_tables_;
  std::optional<ops::LoraFactorPack> factors_;
  std::vector<ops::DoraFactors> dora_;
};

}  // namespace wgrad::model
