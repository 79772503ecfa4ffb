#pragma once

#include <array>
#include <span>

#include "model/adapted_linear.h"
#include "model/adapter.h"
#include "model/batch.h"
#include "model/model.h"
#include "model/rope_tables.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/gated_pack.h"

namespace wgrad::model {

/// The keys (after rotation) and values of a layer's earlier tokens, f32 [capacity, key_size].
struct KeyValueCache {
  Tensor keys, values;
  int64_t length = 0;  ///< rows that are filled
};

/// What a half of a block adds to the residual stream, before the norm of it.
struct HalfOutput {
  Tensor rows;  ///< [T, hidden]
  Tensor inv_rms;
};

/// What the backward pass of one block reads. The normed inputs and the activation of the
/// feed-forward part are computed again: they cost one pass over memory each and are its largest.
struct BlockActivations {
  Tensor input;                                           ///< [T, hidden]
  Tensor input_inv_rms;                                   ///< [T]
  Tensor q_projected, k_projected, q_inv_rms, k_inv_rms;  ///< only with q/k norms
  ops::AttentionSaved heads;                              ///< q, k, v after norm and rotation
  Tensor attention;                                       ///< [T, query_size]
  Tensor logsumexp;                                       ///< [T, heads]
  Tensor middle;  ///< [T, hidden], the residual stream between the two halves
  Tensor middle_inv_rms;
  HalfOutput attention_output, feed_forward_output;    ///< only with norms of them
  Tensor gate, up;                                     ///< [T, intermediate]
  ops::GatedHalves gated;                              ///< or these
  std::array<LoraActivations, kProducts.size()> lora;  ///< of each adapted product
};

/// One pass over one micro-batch.
struct BlockPass {
  const Batch& batch;
  std::span<const RopeView> ropes;  ///< those of ModelConfig::ropes
  AdapterPass adapter = {};
};

/// One transformer block, forward and backward as mirror images:
///   middle = input + norm(o(attention(rope(norm(q(n1))), rope(norm(k(n1))), v(n1)))),
///   output = middle + norm(down(act(gate(n2)) * up(n2))), n1 = norm(input), n2 = norm(middle)
/// with those norms and factors that the model has. Borrows model and adapter.
class Block {
 public:
  Block(Context& ctx, const Model& model, const Adapter* adapter, int64_t index);

  /// Turns the residual stream x [T, hidden] into the block's output. With `saved`, x itself is
  /// kept there and a new tensor returned; without, x is overwritten and returned.
  Tensor forward(const BlockPass& pass, const Tensor& x, BlockActivations* saved,
                 KeyValueCache* cache) const;
  /// Turns grad [T, hidden], the gradient of the output, into that of the input, in place, adds to
  /// the gradients of what is trained, and releases `saved` as it goes. Without
  /// `needs_input_grad` it stops at the last trained projection; grad is then meaningless.
  void backward(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                bool needs_input_grad) const;
  /// Whether anything of this block is trained.
  bool trains() const;

 private:
  Tensor activation(Shape shape, const char* label) const;
  ops::AttentionShape attention_shape(const Batch& batch) const;
  AdaptedLinear linear(const BlockPass& pass, Projection projection) const;
  /// x itself where the model has no such norm.
  Tensor normed(NormKind kind, const Tensor& x, const Tensor& inv_rms) const;
  void rotate(const BlockPass& pass, const Tensor& x, bool inverse) const;
  /// forward() of one token that follows those in the cache, on a GPU whose limits and a model
  /// whose layers let several products be one dispatch.
  Tensor forward_token(const BlockPass& pass, const Tensor& x, KeyValueCache& cache) const;
  bool takes_token(const BlockPass& pass) const;
  Tensor attend(const BlockPass& pass, const Tensor& normed, BlockActivations& act,
                KeyValueCache* cache) const;
  /// silu(gate) up, packed alone (then act holds halves) where all three layers take it so.
  ops::LinearInput activate(const BlockPass& pass, BlockActivations& act) const;
  void forward_head_norm(NormKind kind, Tensor& x, Tensor& projected, Tensor& inv_rms,
                         const char* label) const;
  /// The residual stream x with the output of a half, whose last layer is `projection`. With
  /// `saved` in a new tensor, otherwise in x.
  Tensor add_output(const BlockPass& pass, Projection projection, ops::LinearInput& input,
                    const Tensor& x, HalfOutput* saved, LoraActivations* lora) const;

  Tensor backward_head_norm(NormKind kind, const Tensor& projected, const Tensor& inv_rms,
                            const Tensor& grad, const char* label) const;
  /// The gradient of what a half's last layer gives, from that of the residual stream.
  Tensor backward_output(NormKind kind, HalfOutput& saved, const Tensor& grad) const;
  /// What takes the gradient of a half's input: the residual stream's own where there is no norm.
  Tensor grad_of_normed(NormKind kind, const Tensor& grad) const;
  void backward_input_norm(NormKind kind, const Tensor& x, const Tensor& inv_rms,
                           const Tensor& grad_normed, const Tensor& grad) const;
  void backward_feed_forward(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                             bool needs_input_grad) const;
  /// The same where gate and up were kept as halves.
  void backward_packed_feed_forward(const BlockPass& pass, BlockActivations& saved,
                                    const Tensor& grad, bool needs_input_grad) const;
  void backward_gate_and_up(const BlockPass& pass, BlockActivations& saved, ops::LinearInput& input,
                            ops::LinearInput& grad_gate, ops::LinearInput& grad_up,
                            const Tensor& grad, bool needs_input_grad) const;
  void backward_attention(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                          bool needs_input_grad) const;
  bool trains(std::initializer_list<Projection> projections) const;
  bool trains(std::initializer_list<NormKind> kinds) const;
  bool trains_attention() const;
  int layer_rope() const { return model_.config.layer_ropes[static_cast<size_t>(index_)]; }

  Context& ctx_;
  const Model& model_;
  const Layer& layer_;
  const Adapter* adapter_;
  int64_t index_;
};

}  // namespace wgrad::model
