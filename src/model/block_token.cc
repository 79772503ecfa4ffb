// Generation: one token through a block on a GPU, in as few dispatches as its products allow.

#include <algorithm>
#include <array>
#include <vector>

#include "model/block.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear_token.h"
#include "ops/rope_append.h"
#include "ops/window.h"

namespace wgrad::model {
namespace {

using ops::MatvecNorm;
using ops::TokenLinear;

/// Vectors of one token in one memory, each where a binding may begin.
std::vector<Tensor> vectors(Context& ctx, std::span<const int64_t> sizes, const char* label) {
  const auto padded = [](int64_t size) { return (size + 63) / 64 * 64; };
  int64_t all = 0;
  for (const int64_t size : sizes) all += padded(size);
  const Tensor memory = ctx.allocate({all}, DType::kF32, label);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(memory.flat(begin, size).reshape({1, size}));
    begin += padded(size);
  }
  return parts;
}

/// Layers that take the same input; with DoRA all of them or none.
struct Group {
  std::vector<AdaptedLinear> layers;
  std::vector<Tensor> y;

  bool scaled() const { return layers.front().dora != nullptr; }
};

std::vector<TokenLinear> products(const Group& group) {
  std::vector<TokenLinear> out;
  for (size_t i = 0; i < group.layers.size(); ++i) {
    const Linear& linear = group.layers[i].linear;
    out.push_back({&linear.weight, group.scaled() ? Tensor() : linear.bias, group.y[i]});
  }
  return out;
}

/// x A^T of the layers that are adapted, in one memory.
struct Projected {
  std::vector<ops::Weight> a;
  std::vector<TokenLinear> products;
  std::vector<ops::TokenExpand> terms;
  float scale = 0.0f;
};

Projected projected(Context& ctx, const Group& group) {
  Projected p;
  int64_t rank = 0;
  for (const AdaptedLinear& layer : group.layers) {
    if (!layer.lora) continue;
    rank = layer.lora.a->value.dim(0);
    p.scale = layer.lora.scale;
  }
  if (rank == 0) return p;
  const auto count = static_cast<int64_t>(group.layers.size());
  const Tensor all = ctx.allocate({count, rank}, DType::kF32, "activations/lora");
  p.a.reserve(group.layers.size());
  for (size_t i = 0; i < group.layers.size(); ++i) {
    const LoraPair& lora = group.layers[i].lora;
    if (!lora) continue;
    const auto row = static_cast<int64_t>(i);
    const Tensor xa = all.rows(row, row + 1);
    p.a.push_back(ops::weight_from(lora.a->value, "lora_A"));
    p.products.push_back({&p.a.back(), Tensor(), xa});
    p.terms.push_back({xa, lora.b->value, group.y[i]});
  }
  return p;
}

bool adapted(const Group& group) {
  return std::any_of(group.layers.begin(), group.layers.end(),
                     [](const AdaptedLinear& layer) { return static_cast<bool>(layer.lora); });
}

/// y = norm(x) W^T + bias + scale (norm(x) A^T) B^T (+ y) of each layer.
void run_unscaled(Context& ctx, const Tensor& x, const MatvecNorm& norm, const Group& group,
                  bool accumulate) {
  ops::token_linears(ctx, x, norm, products(group), accumulate);
  const Projected lora = projected(ctx, group);
  if (lora.terms.empty()) return;
  ops::token_linears(ctx, x, norm, lora.products);
  ops::token_expand(ctx, lora.terms, lora.scale);
}

/// The same; with DoRA all but the bias and the y that is added to is scaled.
void run(Context& ctx, const Tensor& x, const MatvecNorm& norm, const Group& group,
         bool accumulate) {
  if (!group.scaled()) return run_unscaled(ctx, x, norm, group, accumulate);
  std::vector<int64_t> sizes;
  for (const Tensor& y : group.y) sizes.push_back(y.size());
  const Group unscaled = {group.layers, vectors(ctx, sizes, "activations/dora")};
  run_unscaled(ctx, x, norm, unscaled, false);
  for (size_t i = 0; i < group.layers.size(); ++i) {
    const AdaptedLinear& layer = group.layers[i];
    ops::dora_forward(ctx, unscaled.y[i], layer.dora->factor, layer.linear.bias, 0.0f, group.y[i],
                      accumulate);
  }
}

}  // namespace

Tensor Block::forward_token(const BlockPass& pass, const Tensor& x, KeyValueCache& cache) const {
  const ModelConfig& config = model_.config;
  const auto group = [&](std::initializer_list<Projection> of, std::vector<Tensor> y) {
    Group group;
    for (const Projection p : of) group.layers.push_back(linear(pass, p));
    group.y = std::move(y);
    return group;
  };
  const auto norm_of = [&](const Norm& norm) {
    return MatvecNorm{norm.weight, config.rms_norm_eps, config.norm_offset};
  };
  const auto add_half = [&](Projection last, NormKind kind, const Tensor& from) {
    const float scale = config.residual_scale;
    if (!layer_[kind].weight && scale == 1.0f) return run(ctx_, from, {}, group({last}, {x}), true);
    const Tensor y = activation(x.shape(), "activations/half output");
    run(ctx_, from, {}, group({last}, {y}), false);
    ops::add_scaled(ctx_, normed(kind, y, activation({1}, "activations/norm")), scale, x);
  };

  const int64_t key_size = config.key_size();
  const std::array<int64_t, 3> qkv_sizes = {config.query_size(), key_size, key_size};
  const auto qkv = vectors(ctx_, qkv_sizes, "activations/q");
  run(ctx_, x, norm_of(layer_[NormKind::kInput]),
      group({Projection::kQ, Projection::kK, Projection::kV}, qkv), false);
  const int64_t length = cache.length++;
  const bool turns = layer_rope() != kNoRope;
  const RopeView rope = turns ? pass.ropes[static_cast<size_t>(layer_rope())] : RopeView();
  const Tensor q = activation(qkv[0].shape(), "activations/q");
  ops::rope_append(ctx_, {.q = qkv[0],
                          .k = qkv[1],
                          .v = qkv[2],
                          .turned = q,
                          .position = turns ? rope.places : pass.batch.device_row_begin,
                          .table = rope.table,
                          .keys = cache.keys,
                          .values = cache.values,
                          .row = length,
                          .q_norm = norm_of(layer_[NormKind::kQ]),
                          .k_norm = norm_of(layer_[NormKind::kK]),
                          .head_dim = config.head_dim,
                          .rotary_dim = turns ? 2 * rope.table.dim(1) : 0});
  ops::AttentionShape shape = attention_shape(pass.batch);
  shape.query_offset = length;
  shape.keys = length + 1;
  const Tensor attention = activation(q.shape(), "activations/attention");
  const Tensor logsumexp = activation({1, config.heads}, "activations/attention");
  const bool whole = cache.keys.bytes() <= ops::binding_limit(ctx_);
  const int64_t rows = whole ? cache.keys.dim(0) : shape.keys;
  ops::attention_forward(ctx_, shape, q, cache.keys.rows(0, rows), cache.values.rows(0, rows),
                         pass.batch.device_row_begin, attention, logsumexp);
  add_half(Projection::kO, NormKind::kAttentionOutput, attention);

  const MatvecNorm norm = norm_of(layer_[NormKind::kMiddle]);
  const std::array<int64_t, 2> gate_up_sizes = {config.intermediate_size, config.intermediate_size};
  const auto gate_up = vectors(ctx_, gate_up_sizes, "activations/gate");
  const Group feed_forward = group({Projection::kGate, Projection::kUp}, gate_up);
  if (!adapted(feed_forward)) {
    const auto layers = products(feed_forward);
    ops::token_gated(ctx_, config.activation, x, norm, layers[0], layers[1]);
    add_half(Projection::kDown, NormKind::kFeedForwardOutput, gate_up[0]);
    return x;
  }
  run(ctx_, x, norm, feed_forward, false);
  const Tensor activated = activation(gate_up[0].shape(), "scratch/activated");
  ops::gated_forward(ctx_, config.activation, gate_up[0], gate_up[1], activated);
  add_half(Projection::kDown, NormKind::kFeedForwardOutput, activated);
  return x;
}

bool Block::takes_token(const BlockPass& pass) const {
  const auto fits = [&](std::initializer_list<Projection> of, bool norm) {
    std::vector<TokenLinear> layers;
    LoraPair other;
    size_t scaled = 0;
    for (const Projection p : of) {
      const Linear& linear = layer_[p];
      layers.push_back({&linear.weight, linear.bias, Tensor()});
      const LoraPair lora = this->linear(pass, p).lora;
      if (!lora) continue;
      if (lora.a->value.dim(1) % 8 != 0) return false;
      if (lora.magnitude != nullptr) ++scaled;
      // The terms of a group are one dispatch.
      const bool alike =
          !other || (other.scale == lora.scale && other.a->value.dim(0) == lora.a->value.dim(0));
      if (!alike) return false;
      other = lora;
    }
    return (scaled == 0 || scaled == of.size()) && ops::fits_token_linears(ctx_, layers, norm);
  };
  const bool norms = model_.config.pre_norms;
  return fits({Projection::kQ, Projection::kK, Projection::kV}, norms) &&
         fits({Projection::kO}, false) && fits({Projection::kGate, Projection::kUp}, norms) &&
         fits({Projection::kDown}, false);
}

}  // namespace wgrad::model
