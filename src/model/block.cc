#include "model/block.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace wgrad::model {
namespace {

/// Appends rows to a cache and returns all that it then holds.
Tensor append(Context& ctx, const Tensor& rows, const Tensor& cache, int64_t length) {
  const int64_t end = length + rows.dim(0);
  ops::copy(ctx, rows, cache.rows(length, end));
  return cache.rows(0, end);
}

}  // namespace

Block::Block(Context& ctx, const Model& model, const Adapter* adapter, int64_t index)
    : ctx_(ctx),
      model_(model),
      layer_(model.layers[static_cast<size_t>(index)]),
      adapter_(adapter),
      index_(index) {}

Tensor Block::activation(Shape shape, const char* label) const {
  return ctx_.allocate(std::move(shape), DType::kF32, label);
}

ops::AttentionShape Block::attention_shape(const Batch& batch) const {
  const ModelConfig& config = model_.config;
  ops::AttentionShape shape;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.window = config.windows[static_cast<size_t>(index_)];
  shape.longest_row = batch.longest_row;
  shape.scale = config.attention_scale;
  shape.soft_cap = config.attention_soft_cap;
  return shape;
}

AdaptedLinear Block::linear(const BlockPass& pass, Projection projection) const {
  const LoraPair pair = adapter_ == nullptr ? LoraPair() : adapter_->pair(index_, projection);
  // A place of its own for each block (13 bits) and stored layer (3), by its first product:
  // products of one stored layer share their input and so its mask.
  const Projection first = parts_of(model_.config.stored_in(projection))[0];
  const uint64_t place = static_cast<uint64_t>(index_) * 8 + static_cast<uint64_t>(first);
  return AdaptedLinear(layer_[projection], pair, pass.adapter, place);
}

bool Block::trains(std::initializer_list<Projection> projections) const {
  for (const Projection p : projections) {
    const Linear& linear = layer_[p];
    if (linear.grad_weight || linear.grad_bias) return true;
    if (adapter_ != nullptr && adapter_->pair(index_, p)) return true;
  }
  return false;
}

bool Block::trains(std::initializer_list<NormKind> kinds) const {
  return std::any_of(kinds.begin(), kinds.end(),
                     [&](NormKind kind) { return static_cast<bool>(layer_[kind].grad); });
}

bool Block::trains_attention() const {
  return trains({Projection::kQ, Projection::kK, Projection::kV, Projection::kO}) ||
         trains({NormKind::kInput, NormKind::kQ, NormKind::kK, NormKind::kAttentionOutput});
}

bool Block::trains() const {
  return trains_attention() || trains({NormKind::kMiddle, NormKind::kFeedForwardOutput}) ||
         trains({Projection::kGate, Projection::kUp, Projection::kDown});
}

Tensor Block::normed(NormKind kind, const Tensor& x, const Tensor& inv_rms) const {
  const Norm& norm = layer_[kind];
  if (!norm.weight) return x;
  const Tensor y = activation(x.shape(), "scratch/normed");
  ops::rms_norm_forward(ctx_, x, norm.weight, y, inv_rms, model_.config.rms_norm_eps,
                        model_.config.norm_offset);
  return y;
}

void Block::forward_head_norm(NormKind kind, Tensor& x, Tensor& projected, Tensor& inv_rms,
                              const char* label) const {
  const Norm& norm = layer_[kind];
  const Shape rows = {x.size() / norm.weight.size(), norm.weight.size()};
  projected = x;
  x = activation(projected.shape(), label);
  inv_rms = activation({rows[0]}, "activations/norm");
  ops::rms_norm_forward(ctx_, projected.reshape(rows), norm.weight, x.reshape(rows), inv_rms,
                        model_.config.rms_norm_eps, model_.config.norm_offset);
}

void Block::rotate(const BlockPass& pass, const Tensor& x, bool inverse) const {
  if (layer_rope() == kNoRope) return;
  const RopeView& view = pass.ropes[static_cast<size_t>(layer_rope())];
  ops::rope_apply(ctx_, x, view.places, view.table, model_.config.head_dim, 2 * view.table.dim(1),
                  ops::RopePairing::kHalfSplit, inverse);
}

Tensor Block::attend(const BlockPass& pass, const Tensor& normed, BlockActivations& act,
                     KeyValueCache* cache) const {
  const ModelConfig& config = model_.config;
  const int64_t tokens = normed.dim(0);
  ops::LinearInput input(normed);
  const auto project = [&](Projection p, const char* label) {
    const Tensor y = activation({tokens, config.out_features(p)}, label);
    linear(pass, p).forward(ctx_, input, y, false, &act.lora[static_cast<size_t>(p)]);
    return y;
  };
  Tensor q = project(Projection::kQ, "activations/q");
  Tensor k = project(Projection::kK, "activations/k");
  const Tensor v = project(Projection::kV, "activations/v");
  if (config.qk_norm != QkNorm::kNone) {
    forward_head_norm(NormKind::kQ, q, act.q_projected, act.q_inv_rms, "activations/q");
    forward_head_norm(NormKind::kK, k, act.k_projected, act.k_inv_rms, "activations/k");
  }
  rotate(pass, q, false);
  rotate(pass, k, false);
  ops::AttentionShape shape = attention_shape(pass.batch);
  Tensor keys = k, values = v;
  if (cache != nullptr) {
    shape.query_offset = cache->length;
    keys = append(ctx_, k, cache->keys, cache->length);
    values = append(ctx_, v, cache->values, cache->length);
    cache->length += tokens;
  }
  act.attention = activation(q.shape(), "activations/attention");
  act.logsumexp = activation({tokens, config.heads}, "activations/attention");
  act.heads = ops::attention_forward(ctx_, shape, q, keys, values, pass.batch.device_row_begin,
                                     act.attention, act.logsumexp);
  return act.attention;
}

ops::LinearInput Block::activate(const BlockPass& pass, BlockActivations& act) const {
  const int64_t tokens = act.gate.dim(0);
  const auto takes_packed = [&](Projection p) {
    return linear(pass, p).takes_packed(ctx_, tokens);
  };
  if (ops::gated_packs(ctx_, tokens, act.gate.dim(1)) && takes_packed(Projection::kGate) &&
      takes_packed(Projection::kUp) && takes_packed(Projection::kDown)) {
    ops::LinearInput input(
        ops::gated_pack_forward(ctx_, model_.config.activation, act.gate, act.up, act.gated));
    act.gate = act.up = Tensor();
    return input;
  }
  const Tensor activated = activation(act.gate.shape(), "scratch/activated");
  ops::gated_forward(ctx_, model_.config.activation, act.gate, act.up, activated);
  return ops::LinearInput(activated);
}

Tensor Block::add_output(const BlockPass& pass, Projection projection, ops::LinearInput& input,
                         const Tensor& x, HalfOutput* saved, LoraActivations* lora) const {
  const auto own_stream = [&] {
    if (saved == nullptr) return x;
    const Tensor stream = activation(x.shape(), "activations/residual");
    ops::copy(ctx_, x, stream);
    return stream;
  };
  const NormKind kind =
      projection == Projection::kO ? NormKind::kAttentionOutput : NormKind::kFeedForwardOutput;
  const float scale = model_.config.residual_scale;
  if (!layer_[kind].weight && scale == 1.0f) {
    const Tensor stream = own_stream();
    linear(pass, projection).forward(ctx_, input, stream, true, lora);
    return stream;
  }
  HalfOutput output = {activation(x.shape(), "activations/half output"),
                       activation({x.dim(0)}, "activations/norm")};
  linear(pass, projection).forward(ctx_, input, output.rows, false, lora);
  const Tensor added = normed(kind, output.rows, output.inv_rms);
  if (saved != nullptr && layer_[kind].weight) *saved = std::move(output);
  output = {};
  const Tensor stream = own_stream();
  ops::add_scaled(ctx_, added, scale, stream);
  return stream;
}

Tensor Block::forward(const BlockPass& pass, const Tensor& x, BlockActivations* saved,
                      KeyValueCache* cache) const {
  const ModelConfig& config = model_.config;
  const int64_t tokens = x.dim(0);
  if (cache != nullptr && tokens == 1 && takes_token(pass)) return forward_token(pass, x, *cache);
  BlockActivations act;
  const auto lora = [&](Projection p) { return &act.lora[static_cast<size_t>(p)]; };
  Tensor stream;
  act.input_inv_rms = activation({tokens}, "activations/norm");
  {
    const Tensor attention =
        attend(pass, normed(NormKind::kInput, x, act.input_inv_rms), act, cache);
    if (saved != nullptr) {
      act.input = x;
    } else {
      act.heads = {};
      act.q_projected = act.k_projected = act.logsumexp = Tensor();
    }
    ops::LinearInput input(attention);
    stream = add_output(pass, Projection::kO, input, x, saved ? &act.attention_output : nullptr,
                        lora(Projection::kO));
  }
  if (saved == nullptr) act = BlockActivations();

  act.middle_inv_rms = activation({tokens}, "activations/norm");
  act.gate = activation({tokens, config.intermediate_size}, "activations/gate");
  act.up = activation({tokens, config.intermediate_size}, "activations/up");
  {
    ops::LinearInput input(normed(NormKind::kMiddle, stream, act.middle_inv_rms));
    linear(pass, Projection::kGate).forward(ctx_, input, act.gate, false, lora(Projection::kGate));
    linear(pass, Projection::kUp).forward(ctx_, input, act.up, false, lora(Projection::kUp));
  }
  ops::LinearInput input = activate(pass, act);
  if (saved != nullptr) {
    act.middle = stream;
  } else {
    act.gate = act.up = Tensor();
    act.gated = {};
  }
  stream = add_output(pass, Projection::kDown, input, stream,
                      saved ? &act.feed_forward_output : nullptr, lora(Projection::kDown));
  if (saved != nullptr) *saved = std::move(act);
  return stream;
}

}  // namespace wgrad::model
