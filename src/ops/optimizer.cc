#include "ops/optimizer.h"

#include <cmath>

#include "cpu/optimizer.h"
#include "ops/launch.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of adamw.wgsl.
struct AdamWParams {
  uint32_t n;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size, inv_correction2, eps, kept;
  uint32_t zero;
};
static_assert(sizeof(AdamWParams) == 40);

}  // namespace

void adamw_step(Context& ctx, const AdamWStep& step, const Tensor& state, const Tensor& parameters,
                const Tensor& gradients, const Tensor& m, const Tensor& v) {
  constexpr std::string_view kName = "adamw_step";
  const int64_t n = parameters.size();
  expect_elements(kName, "state", state, DType::kF32, 4);
  expect_elements(kName, "parameters", parameters, DType::kF32, n);
  expect_elements(kName, "gradients", gradients, DType::kF32, n);
  expect_elements(kName, "m", m, DType::kF32, n);
  expect_elements(kName, "v", v, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    const float* seen = state.data<float>();
    if (seen[2] == 0.0f) return;
    cpu::AdamWStep s;
    s.learning_rate = step.learning_rate;
    s.beta1 = step.beta1;
    s.beta2 = step.beta2;
    s.eps = step.eps;
    s.weight_decay = step.weight_decay;
    s.bias_correction1 = step.bias_correction1;
    s.bias_correction2 = step.bias_correction2;
    cpu::adamw_step(parameters.data<float>(), gradients.data<float>(), m.data<float>(),
                    v.data<float>(), n, s, static_cast<double>(seen[1]));
    return;
  }
  const int64_t lanes = vector_lanes(n);
  gpu::KernelSpec kernel;
  kernel.source = "adamw";
  kernel.entry_point = kName;
  kernel.prelude = vector_prelude(lanes);
  const auto f32 = [](double value) { return static_cast<float>(value); };
  for_row_parts(ctx, kName, n, 4, [&](int64_t begin, int64_t end) {
    const int64_t size = end - begin;
    const AdamWParams params{static_cast<uint32_t>(size / lanes),
                             f32(step.beta1),
                             f32(1.0 - step.beta1),
                             f32(step.beta2),
                             f32(1.0 - step.beta2),
                             f32(step.learning_rate / step.bias_correction1),
                             f32(1.0 / std::sqrt(step.bias_correction2)),
                             f32(step.eps),
                             f32(1.0 - step.learning_rate * step.weight_decay),
                             0};
    launch(ctx, kernel,
           {in(state), in(gradients.flat(begin, size)), out(parameters.flat(begin, size)),
            out(m.flat(begin, size)), out(v.flat(begin, size))},
           params, invocations(size / lanes));
  });
}

}  // namespace wgrad::ops
