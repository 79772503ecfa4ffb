#include "ops/rope.h"

#include <fmt/format.h>

#include "cpu/rope.h"
#include "ops/launch.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of rope.wgsl.
struct Params {
  uint32_t invocations, heads, head_dim, half, max_position;
};
static_assert(sizeof(Params) == 20);

/// What an invocation of rope.wgsl turns.
struct Share {
  int64_t pairs;  ///< of a head
  int64_t heads;

  Share(int64_t heads_of_token, int64_t head_dim, int64_t half)
      : pairs(half % 4 == 0 && head_dim % 4 == 0 ? 4 : 1), heads(1) {
    if (pairs == 1) return;
    for (heads = 4; heads_of_token % heads != 0;) --heads;
  }
};

}  // namespace

void rope_apply(Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& table,
                int64_t head_dim, int64_t rotary_dim, RopePairing pairing, bool inverse) {
  constexpr std::string_view kName = "rope_apply";
  expect_matrix(kName, "x", x, DType::kF32);
  const int64_t tokens = x.dim(0), n = x.dim(1);
  expect_elements(kName, "positions", positions, DType::kU32, tokens);
  if (rotary_dim <= 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim || n % head_dim != 0) {
    throw runtime_failure(
        kName,
        fmt::format("rotary_dim {}, head_dim {}, {} elements a token", rotary_dim, head_dim, n),
        "expected an even rotary_dim within head_dim, and whole heads a token");
  }
  const int64_t half = rotary_dim / 2, heads = n / head_dim;
  expect_tensor(kName, "table", table, DType::kF32, {table.rank() > 0 ? table.dim(0) : 0, half, 2});
  if (x.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::rope_apply(x.data<float>(), x.data<float>(), positions.data<uint32_t>(),
                    table.data<float>(), tokens, heads, head_dim, rotary_dim,
                    pairing == RopePairing::kHalfSplit ? cpu::RopePairing::kHalfSplit
                                                       : cpu::RopePairing::kInterleaved,
                    inverse);
    return;
  }
  const Share share(heads, head_dim, half);
  gpu::KernelSpec kernel;
  kernel.source = "rope";
  kernel.entry_point = share.pairs == 4 ? "rope_apply_4" : "rope_apply_1";
  kernel.prelude = fmt::format("const HEADS: u32 = {}u;\n", share.heads);
  kernel.overrides = {{"HALF_SPLIT", pairing == RopePairing::kHalfSplit ? 1.0 : 0.0},
                      {"INVERSE", inverse ? 1.0 : 0.0}};
  for_row_parts(ctx, kName, tokens, n * 4, [&](int64_t begin, int64_t end) {
    const int64_t count = (end - begin) * (heads / share.heads) * (half / share.pairs);
    const Params params{static_cast<uint32_t>(count), static_cast<uint32_t>(heads),
                        static_cast<uint32_t>(head_dim), static_cast<uint32_t>(half),
                        static_cast<uint32_t>(table.dim(0))};
    launch(ctx, kernel,
           {in(positions.flat(begin, end - begin)), in(table), out(x.rows(begin, end))}, params,
           invocations(count));
  });
}

}  // namespace wgrad::ops
