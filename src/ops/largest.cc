#include "ops/largest.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "ops/launch.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of largest.wgsl.
struct Params {
  uint32_t n, n_per_group, first_group, first_index;
};
static_assert(sizeof(Params) == 16);

constexpr uint32_t kNone = 0xffffffffu;

}  // namespace

cpu::Largest largest(Context& ctx, const Tensor& x) {
  constexpr std::string_view kName = "largest";
  constexpr int64_t kGroups = 64;  // of a binding
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  if (ctx.kind() == DeviceKind::kCpu) return cpu::largest(x.data<float>(), n);
  const int64_t step = rows_per_binding(ctx, kName, n, 4, 64);
  const Tensor parts =
      ctx.allocate({ceil_div(n, step) * kGroups, 4}, DType::kU32, "scratch/largest");
  gpu::KernelSpec kernel;
  kernel.source = kernel.entry_point = kName;
  int64_t groups_before = 0;
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t size = std::min(step, n - begin);
    const int64_t per_group = ceil_div(ceil_div(size, kGroups), 256) * 256;
    const int64_t count = ceil_div(size, per_group);
    const Params p{static_cast<uint32_t>(size), static_cast<uint32_t>(per_group),
                   static_cast<uint32_t>(groups_before), static_cast<uint32_t>(begin)};
    launch(ctx, kernel, {in(x.flat(begin, size)), out(parts)}, p, groups(count));
    groups_before += count;
  }
  cpu::Largest result{-1, true};
  if (groups_before == 0) return result;
  const std::vector<uint32_t> seen = ctx.read<uint32_t>(parts.rows(0, groups_before));
  float best = 0;
  for (size_t g = 0; g < seen.size(); g += 4) {
    const auto value = std::bit_cast<float>(seen[g]);
    result.finite = result.finite && seen[g + 2] == 0;
    if (seen[g + 1] == kNone) continue;
    if (result.index < 0 || value > best) {
      best = value;
      result.index = seen[g + 1];
    }
  }
  return result;
}

}  // namespace wgrad::ops
