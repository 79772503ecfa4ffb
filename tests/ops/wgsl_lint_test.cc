#include "ops/wgsl_lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/attention_source.h"
#include "ops/context.h"
#include "ops/verify.h"
#include "wgrad/kernels.h"

namespace wgrad::ops {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

gpu::Limits core_limits() {
  gpu::Limits limits;
  limits.max_buffer_size = uint64_t{256} << 20;
  limits.max_binding_size = uint64_t{128} << 20;
  limits.max_storage_buffers = 8;
  limits.max_workgroups_per_dimension = 65535;
  limits.max_workgroup_memory = 16 << 10;
  limits.max_workgroup_invocations = 256;
  return limits;
}

gpu::Limits large_limits() {
  gpu::Limits limits = core_limits();
  limits.max_buffer_size = uint64_t{4} << 30;
  limits.max_binding_size = uint64_t{2} << 30;
  limits.max_storage_buffers = 10;
  limits.max_workgroup_memory = 48 << 10;
  limits.max_workgroup_invocations = 1024;
  return limits;
}

gpu::Features subgroups_of(uint32_t size) {
  gpu::Features features;
  features.shader_f16 = features.subgroups = true;
  features.subgroup_min_size = features.subgroup_max_size = size;
  return features;
}

/// The kernels that the cases of `verify` need on a device that may not be at hand: a plan runs
/// nothing, so the cases' comparisons mean nothing here.
std::vector<gpu::KernelSpec> kernels_for(const gpu::Features& features, const gpu::Limits& limits) {
  const std::unique_ptr<Context> ctx = Context::plan(DeviceKind::kGpu, limits, features, {});
  for (const VerifyCase& c : verify_cases(*ctx, VerifyLevel::kQuick)) run_case(c, *ctx);
  return ctx->planned_kernels();
}

std::vector<gpu::KernelSpec> exported() {
  std::vector<gpu::KernelSpec> specs;
  for (const Kernel& kernel : kernels()) {
    for (const KernelEntryPoint& entry : kernel.entry_points) {
      specs.push_back({kernel.name, entry.name, {}, {}, {}});
    }
  }
  return specs;
}

/// Attention's kernels on subgroup matrices for every packed size of heads.
std::vector<gpu::KernelSpec> attention_matrix_kernels() {
  using Kernel = AttentionMatrixKernel;
  std::vector<gpu::KernelSpec> specs;
  for (const int64_t head_dim : {48, 128, 192, 256}) {
    for (const float soft_cap : {0.0f, 50.0f}) {
      for (const Kernel kernel : {Kernel::kForward, Kernel::kGradKvKeep, Kernel::kGradQKept,
                                  Kernel::kGradQ, Kernel::kGradKv}) {
        const bool narrow_only = kernel == Kernel::kGradQ || kernel == Kernel::kGradKv;
        if (head_dim > 128 && narrow_only) continue;
        specs.push_back(attention_matrix_kernel(kernel, head_dim, soft_cap));
      }
    }
  }
  return specs;
}

TEST(WgslLint, AcceptsEveryKernelOfEveryKindOfDevice) {
  gpu::Features matrices = subgroups_of(32);
  matrices.subgroup_matrix_f16 = true;
  std::vector<gpu::KernelSpec> all = exported();
  const std::vector<gpu::KernelSpec> attention = attention_matrix_kernels();
  all.insert(all.end(), attention.begin(), attention.end());
  for (const auto& part :
       {kernels_for({}, core_limits()), kernels_for(subgroups_of(8), large_limits()),
        kernels_for(matrices, large_limits())}) {
    EXPECT_GT(part.size(), 50u);
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_THAT(files_without_kernel(all), IsEmpty());
  if (!has_tint()) GTEST_SKIP() << "tint is not on the PATH: the texts were not validated";
  EXPECT_THAT(lint(all), IsEmpty());
}

TEST(WgslLint, RefusesBrokenText) {
  if (!has_tint()) GTEST_SKIP() << "tint is not on the PATH";
  const std::vector<gpu::KernelSpec> broken = {
      {"broken", "main", {}, {}, "fn main() { let x: u32 = 1.5; }"}};
  ASSERT_EQ(lint(broken).size(), 1u);
  EXPECT_THAT(lint(broken)[0], HasSubstr("broken.main"));
}

}  // namespace
}  // namespace wgrad::ops
