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

struct Group {
  std::vector<AdaptedLinear> layers;
  std::vector<Tensor> y;
};

std::vector<TokenLinear> products(const Group& group) {
  std::vector<TokenLinear> out;
  for (size_t i = 0; i < group.layers.size(); ++i) {
    const Linear& linear = group.layers[i].linear;
    out.push_back({&linear.weight, linear.bias, group.y[i]});
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
void run(Context& ctx, const Tensor& x, const MatvecNorm& norm, const Group& group,
         bool accumulate) {
  ops::token_linears(ctx, x, norm, products(group), accumulate);
  const Projected lora = projected(ctx, group);
  if (lora.terms.empty()) return;
  ops::token_linears(ctx, x, norm, lora.products);
  ops::token_expand(ctx, lora.terms, lora.scale);
}

}  // namespace

Tensor Block::forward_token(const BlockPass& pass, const Tensor& x, KeyValueCache& cache) const {
  const ModelConfig& config = model_.config;
  const auto vectors = [&](std::initializer_list<int64_t> sizes, const char* label) {
    int64_t all = 0;
    for (const int64_t size : sizes) all += size;
    const Tensor memory = ctx_.allocate({all}, DType::kF32, label);
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      parts.push_back(memory.flat(begin, size).reshape({1, size}));
      begin += size;
    }
    return parts;
  };
  const auto group = [&](std::initializer_list<Projection> of, std::vector<Tensor> y) {
    Group group;
    for (const Projection p : of) group.layers.push_back(linear(pass, p));
    group.y = std::move(y);
    return group;
  };
  const auto norm_of = [&](const Norm& norm) {
    return MatvecNorm{norm.weight, config.rms_norm_eps, config.norm_offset};
  };

  const int64_t key_size = config.key_size();
  const auto qkv = vectors({config.query_size(), key_size, key_size}, "activations/q");
  run(ctx_, x, norm_of(layer_[NormKind::kInput]),
      group({Projection::kQ, Projection::kK, Projection::kV}, qkv), false);
  const int64_t length = cache.length++;
  const RopeView& rope = pass.ropes[static_cast<size_t>(layer_rope())];
  ops::rope_append(ctx_, {.q = qkv[0],
                          .k = qkv[1],
                          .v = qkv[2],
                          .position = rope.places,
                          .table = rope.table,
                          .keys = cache.keys,
                          .values = cache.values,
                          .row = length,
                          .q_norm = norm_of(layer_[NormKind::kQ]),
                          .k_norm = norm_of(layer_[NormKind::kK]),
                          .head_dim = config.head_dim,
                          .rotary_dim = 2 * rope.table.dim(1)});
  ops::AttentionShape shape = attention_shape(pass.batch);
  shape.query_offset = length;
  shape.keys = length + 1;
  const Tensor attention = ctx_.allocate(qkv[0].shape(), DType::kF32, "activations/attention");
  const Tensor logsumexp = ctx_.allocate({1, config.heads}, DType::kF32, "activations/attention");
  const bool whole = cache.keys.bytes() <= ops::binding_limit(ctx_);
  const int64_t rows = whole ? cache.keys.dim(0) : shape.keys;
  ops::attention_forward(ctx_, shape, qkv[0], cache.keys.rows(0, rows), cache.values.rows(0, rows),
                         pass.batch.device_row_begin, attention, logsumexp);
  run(ctx_, attention, {}, group({Projection::kO}, {x}), true);

  const MatvecNorm norm = norm_of(layer_[NormKind::kMiddle]);
  const auto gate_up =
      vectors({config.intermediate_size, config.intermediate_size}, "activations/gate");
  const Group feed_forward = group({Projection::kGate, Projection::kUp}, gate_up);
  if (!adapted(feed_forward)) {
    const auto layers = products(feed_forward);
    ops::token_gated(ctx_, config.activation, x, norm, layers[0], layers[1]);
    run(ctx_, gate_up[0], {}, group({Projection::kDown}, {x}), true);
    return x;
  }
  run(ctx_, x, norm, feed_forward, false);
  const Tensor activated = ctx_.allocate(gate_up[0].shape(), DType::kF32, "scratch/activated");
  ops::gated_forward(ctx_, config.activation, gate_up[0], gate_up[1], activated);
  run(ctx_, activated, {}, group({Projection::kDown}, {x}), true);
  return x;
}

bool Block::takes_token(const BlockPass& pass) const {
  const ModelConfig& config = model_.config;
  if (!config.pre_norms || config.post_norms || config.residual_scale != 1.0f ||
      config.qk_norm == QkNorm::kWhole || layer_rope() == kNoRope) {
    return false;
  }
  const auto fits = [&](std::initializer_list<Projection> of, bool norm) {
    std::vector<TokenLinear> layers;
    LoraPair other;
    for (const Projection p : of) {
      const Linear& linear = layer_[p];
      layers.push_back({&linear.weight, linear.bias, Tensor()});
      const LoraPair lora = this->linear(pass, p).lora;
      if (!lora) continue;
      if (lora.magnitude != nullptr || lora.a->value.dim(1) % 8 != 0) return false;
      // The terms of a group are one dispatch.
      const bool alike =
          !other || (other.scale == lora.scale && other.a->value.dim(0) == lora.a->value.dim(0));
      if (!alike) return false;
      other = lora;
    }
    return ops::fits_token_linears(ctx_, layers, norm);
  };
  return fits({Projection::kQ, Projection::kK, Projection::kV}, true) &&
         fits({Projection::kO}, false) && fits({Projection::kGate, Projection::kUp}, true) &&
         fits({Projection::kDown}, false);
}

}  // namespace wgrad::model
