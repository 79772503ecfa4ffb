#include "cpu/dropout.h"

#include <fmt/format.h>

#include "ops/elementwise.h"
#include "ops/launch.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of dropout.wgsl.
struct Params {
  uint32_t n, first_block, seed_low, seed_high, stream_low, stream_high, threshold;
  float factor;
};
static_assert(sizeof(Params) == 32);

uint32_t low(uint64_t v) { return static_cast<uint32_t>(v); }
uint32_t high(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

/// Philox blocks that an invocation of dropout.wgsl takes.
constexpr int64_t kRun = 2;
/// The kernel counts blocks in 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 34;

/// Elements drawn at a time where a CPU result is added rather than set.
constexpr int64_t kChunk = 4096;

void dropout_on_cpu(const Tensor& x, const Tensor& y, double p, DropoutKey key, bool accumulate) {
  const int64_t n = x.size();
  if (!accumulate) {
    cpu::dropout(x.data<float>(), y.data<float>(), n, p, key.seed, key.stream);
    return;
  }
  float values[kChunk];
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    cpu::dropout(x.data<float>() + begin, values, count, p, key.seed, key.stream,
                 static_cast<uint64_t>(begin));
    float* sum = y.data<float>() + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
  }
}

}  // namespace

void dropout(Context& ctx, const Tensor& x, const Tensor& y, float p, DropoutKey key,
             bool accumulate) {
  constexpr std::string_view kName = "dropout";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "y", y, DType::kF32, n);
  if (!(p >= 0.0f && p < 1.0f)) {
    throw runtime_failure(kName, fmt::format("p = {}", p), "expected 0 <= p < 1");
  }
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    dropout_on_cpu(x, y, static_cast<double>(p), key, accumulate);
    return;
  }
  const bool in_place = x.storage() == y.storage();
  if (in_place && x.byte_offset() != y.byte_offset()) {
    throw runtime_failure(kName, "x and y overlap", "expected y to be x or memory of its own");
  }
  if (n > kMostElements) {
    throw runtime_failure(kName, fmt::format("{} elements", n),
                          fmt::format("expected at most {}", kMostElements));
  }
  const int64_t lanes = vector_lanes(n);
  gpu::KernelSpec kernel;
  kernel.source = "dropout";
  if (lanes == 4) {
    kernel.entry_point = in_place ? "dropout_4_in_place" : "dropout_4";
  } else {
    kernel.entry_point = in_place ? "dropout_1_in_place" : "dropout_1";
  }
  kernel.overrides = {{"ACCUMULATE", accumulate ? 1.0 : 0.0}};
  for_row_parts(ctx, kName, n, 4, [&](int64_t begin, int64_t end) {
    const gpu::Workgroups workgroups = invocations(ceil_div(ceil_div(end - begin, 4), kRun));
    const Params params{static_cast<uint32_t>(end - begin),
                        static_cast<uint32_t>(begin / 4),
                        low(key.seed),
                        high(key.seed),
                        low(key.stream),
                        high(key.stream),
                        cpu::dropout_threshold(static_cast<double>(p)),
                        static_cast<float>(1.0 / (1.0 - static_cast<double>(p)))};
    const Tensor to = y.flat(begin, end - begin);
    if (in_place) {
      launch(ctx, kernel, {out(to)}, params, workgroups);
    } else {
      launch(ctx, kernel, {in(x.flat(begin, end - begin)), out(to)}, params, workgroups);
    }
  });
}

}  // namespace wgrad::ops
