// The CPU operations in f32 at the sizes of a SmolLM2-135M training step (4 rows of 110 tokens, 9
// query heads on 3, head_dim 64, hidden 576, 1536 in the MLP), beside a copy of memory. Attention
// reports the arithmetic of the scores that are seen; the rest reports bytes read and written.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/activation.h"
#include "cpu/attention.h"
#include "cpu/cross_entropy.h"
#include "cpu/dropout.h"
#include "cpu/linear_cross_entropy.h"
#include "cpu/matmul.h"
#include "cpu/nf4.h"
#include "cpu/optimizer.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"

namespace {

using namespace wgrad::cpu;  // NOLINT

using Floats = std::vector<float>;

constexpr int64_t kTokens = 440;
constexpr int64_t kHidden = 576;
constexpr int64_t kInner = 1536;
constexpr int64_t kVocab = 49152;

Floats random_floats(int64_t n) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

/// Bytes of `arrays` f32 arrays of n elements an iteration.
void report_bytes(benchmark::State& state, int64_t arrays, int64_t n) {
  state.SetBytesProcessed(state.iterations() * arrays * n * static_cast<int64_t>(sizeof(float)));
}

void report_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                                benchmark::Counter::kIsRate);
}

void BM_copy(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Floats from = random_floats(n);
  Floats to(from.size());
  for (auto _ : state) {
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < n / 4096; ++block) {
      std::memcpy(to.data() + block * 4096, from.data() + block * 4096, 4096 * sizeof(float));
    }
    benchmark::ClobberMemory();
  }
  report_bytes(state, 2, n);
}
BENCHMARK(BM_copy)->Arg(kTokens * 1024)->Arg(16 << 20)->UseRealTime();

void BM_rms_norm_forward(benchmark::State& state) {
  const Floats x = random_floats(kTokens * kHidden);
  const Floats weight = random_floats(kHidden);
  Floats y(x.size());
  Floats inv_rms(kTokens);
  for (auto _ : state) {
    rms_norm_forward(x.data(), weight.data(), y.data(), inv_rms.data(), kTokens, kHidden, 1e-5);
  }
  report_bytes(state, 2, kTokens * kHidden);
}
BENCHMARK(BM_rms_norm_forward)->UseRealTime();

void BM_rms_norm_backward(benchmark::State& state) {
  const bool with_weight = state.range(0) != 0;
  const Floats x = random_floats(kTokens * kHidden);
  const Floats weight = random_floats(kHidden);
  const Floats grad_y = random_floats(kTokens * kHidden);
  const Floats inv_rms(kTokens, 1.0f);
  Floats grad_x(x.size());
  Floats grad_weight(kHidden);
  for (auto _ : state) {
    rms_norm_backward(x.data(), weight.data(), inv_rms.data(), grad_y.data(), grad_x.data(),
                      with_weight ? grad_weight.data() : nullptr, kTokens, kHidden, false);
  }
  report_bytes(state, with_weight ? 5 : 3, kTokens * kHidden);
}
BENCHMARK(BM_rms_norm_backward)->Arg(0)->Arg(1)->UseRealTime();

void BM_swiglu_forward(benchmark::State& state) {
  const int64_t n = kTokens * kInner;
  const Floats gate = random_floats(n);
  const Floats up = random_floats(n);
  Floats out(gate.size());
  for (auto _ : state) gated_forward(Activation::kSilu, gate.data(), up.data(), out.data(), n);
  report_bytes(state, 3, n);
}
BENCHMARK(BM_swiglu_forward)->UseRealTime();

void BM_swiglu_backward(benchmark::State& state) {
  const int64_t n = kTokens * kInner;
  const Floats gate = random_floats(n);
  const Floats up = random_floats(n);
  const Floats grad_out = random_floats(n);
  Floats grad_gate(gate.size());
  Floats grad_up(gate.size());
  for (auto _ : state) {
    gated_backward(Activation::kSilu, gate.data(), up.data(), grad_out.data(), grad_gate.data(),
                   grad_up.data(), n);
  }
  report_bytes(state, 5, n);
}
BENCHMARK(BM_swiglu_backward)->UseRealTime();

void BM_rope(benchmark::State& state) {
  const Floats table = rope_table<float>(rope_inv_freq(1e4, 64), 128);
  std::vector<uint32_t> positions(kTokens);
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = t % 110;
  Floats x = random_floats(kTokens * kHidden);
  for (auto _ : state) {
    rope_apply(x.data(), x.data(), positions.data(), table.data(), kTokens, 9, 64, 64,
               RopePairing::kHalfSplit, false);
  }
  report_bytes(state, 2, kTokens * kHidden);
}
BENCHMARK(BM_rope)->UseRealTime();

void BM_dropout(benchmark::State& state) {
  const int64_t n = kTokens * kInner;
  Floats x = random_floats(n);
  Floats y(x.size());
  for (auto _ : state) dropout(x.data(), y.data(), n, 0.1, 1, 2);
  report_bytes(state, 2, n);
}
BENCHMARK(BM_dropout)->UseRealTime();

void BM_adamw(benchmark::State& state) {
  const int64_t n = 5 << 20;
  Floats p = random_floats(n);
  const Floats g = random_floats(n);
  Floats m(p.size());
  Floats v(p.size());
  const AdamWStep step{1e-4, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001};
  for (auto _ : state) adamw_step(p.data(), g.data(), m.data(), v.data(), n, step);
  report_bytes(state, 7, n);
}
BENCHMARK(BM_adamw)->UseRealTime();

void BM_sum_squares(benchmark::State& state) {
  const Floats x = random_floats(5 << 20);
  for (auto _ : state) benchmark::DoNotOptimize(sum_squares(x.data(), 5 << 20));
  report_bytes(state, 1, 5 << 20);
}
BENCHMARK(BM_sum_squares)->UseRealTime();

void BM_cross_entropy(benchmark::State& state) {
  const int64_t rows = 64;
  Floats logits = random_floats(rows * kVocab);
  const std::vector<int32_t> labels(rows, 7);
  Floats losses(rows);
  Floats logsumexp(rows);
  for (auto _ : state) {
    cross_entropy_forward(logits.data(), labels.data(), losses.data(), logsumexp.data(), rows,
                          kVocab);
    cross_entropy_backward(logits.data(), labels.data(), logsumexp.data(), rows, kVocab, 1.0f);
  }
  report_bytes(state, 4, rows * kVocab);
}
BENCHMARK(BM_cross_entropy)->UseRealTime();

void BM_linear_cross_entropy(benchmark::State& state) {
  const Floats hidden = random_floats(kTokens * kHidden);
  const Floats weight = random_floats(kVocab * kHidden);
  const std::vector<int32_t> labels(kTokens, 7);
  Floats losses(kTokens);
  Floats grad(hidden.size());
  for (auto _ : state) {
    linear_cross_entropy(hidden.data(), weight.data(), labels.data(), 1.0f, losses.data(),
                         grad.data(), static_cast<float*>(nullptr), kTokens, kHidden, kVocab,
                         state.range(0));
  }
  report_flops(state, 4.0 * kTokens * kHidden * kVocab);
}
BENCHMARK(BM_linear_cross_entropy)->Arg(64)->Arg(128)->Arg(0)->UseRealTime();

void BM_matmul(benchmark::State& state) {
  const int64_t m = kTokens;
  const int64_t n = state.range(0);
  const int64_t k = state.range(1);
  const Floats a = random_floats(m * k);
  const Floats b = random_floats(n * k);
  Floats c(static_cast<size_t>(m * n));
  for (auto _ : state) matmul(MatmulOp::kNT, m, n, k, a.data(), k, b.data(), k, c.data(), n);
  report_flops(state, 2.0 * static_cast<double>(m * n * k));
}
BENCHMARK(BM_matmul)->Args({kInner, kHidden})->Args({kHidden, kInner})->UseRealTime();

void BM_matmul_nf4(benchmark::State& state) {
  const Floats w = random_floats(kInner * kHidden);
  const int64_t n = static_cast<int64_t>(w.size());
  std::vector<uint8_t> packed(static_cast<size_t>(nf4_packed_bytes(n)));
  Floats absmax(static_cast<size_t>(nf4_blocks(n)));
  quantise_nf4(w.data(), n, packed.data(), absmax.data());
  Nf4View view;
  view.packed = packed.data();
  view.absmax = absmax.data();
  const Floats a = random_floats(kTokens * kHidden);
  Floats c(static_cast<size_t>(kTokens * kInner));
  for (auto _ : state) {
    matmul_nf4(MatmulOp::kNT, kTokens, kInner, kHidden, a.data(), kHidden, view, c.data(), kInner);
  }
  report_flops(state, 2.0 * kTokens * kInner * kHidden);
}
BENCHMARK(BM_matmul_nf4)->UseRealTime();

/// Rows of equal length, end to end.
struct AttentionSetting {
  AttentionSetting(int64_t rows, int64_t length) {
    shape.queries = shape.keys = rows * length;
    shape.query_heads = 9;
    shape.kv_heads = 3;
    shape.head_dim = 64;
    shape.scale = 0.125;
    for (int64_t i = 0; i < shape.queries; ++i) {
      row_begin.push_back(static_cast<uint32_t>(i / length * length));
    }
    q = random_floats(shape.queries * 9 * 64);
    k = random_floats(shape.keys * 3 * 64);
    v = random_floats(shape.keys * 3 * 64);
    out.resize(q.size());
    logsumexp.resize(static_cast<size_t>(shape.queries * 9));
    product_flops = static_cast<double>(rows * length * (length + 1) / 2 * 9) * 2.0 * 64.0;
  }
  void forward() {
    attention_forward(shape, q.data(), k.data(), v.data(), row_begin.data(), out.data(),
                      logsumexp.data());
  }

  AttentionShape shape;
  std::vector<uint32_t> row_begin;
  Floats q, k, v, out, logsumexp;
  double product_flops = 0.0;  // of one product over the scores that are seen
};

void BM_attention_forward(benchmark::State& state) {
  AttentionSetting a(state.range(0), state.range(1));
  for (auto _ : state) a.forward();
  report_flops(state, 2.0 * a.product_flops);
}
BENCHMARK(BM_attention_forward)->Args({4, 110})->Args({1, 2048})->UseRealTime();

void BM_attention_backward(benchmark::State& state) {
  AttentionSetting a(state.range(0), state.range(1));
  a.forward();
  Floats grad_q(a.q.size());
  Floats grad_k(a.k.size());
  Floats grad_v(a.v.size());
  for (auto _ : state) {
    attention_backward(a.shape, a.q.data(), a.k.data(), a.v.data(), a.row_begin.data(),
                       a.out.data(), a.logsumexp.data(), a.q.data(), grad_q.data(), grad_k.data(),
                       grad_v.data());
  }
  report_flops(state, 5.0 * a.product_flops);
}
BENCHMARK(BM_attention_backward)->Args({4, 110})->Args({1, 2048})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
