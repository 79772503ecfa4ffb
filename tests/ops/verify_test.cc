#include "ops/verify.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

gpu::DeviceOptions software() {
  gpu::DeviceOptions options;
  options.selector = "software";
  options.checked = true;
  return options;
}

std::string describe(const VerifyResult& r) {
  return r.kernel + " (" + r.what + ", " + r.path + "): error " + std::to_string(r.worst_error) +
         ", bound " + std::to_string(r.bound) + ", " + r.where;
}

void expect_all_pass(Context& ctx) {
  const std::vector<VerifyCase> cases = verify_cases(ctx, VerifyLevel::kQuick);
  EXPECT_GT(cases.size(), 100u);
  for (const VerifyCase& c : cases) {
    const VerifyResult result = run_case(c, ctx);
    EXPECT_TRUE(result.passed) << describe(result);
  }
}

TEST(Verify, EveryKernelAgreesWithAllFeatures) {
  const auto ctx = Context::gpu(software(), {});
  ASSERT_TRUE(ctx->features().subgroups) << "the software driver has subgroups";
  expect_all_pass(*ctx);
}

TEST(Verify, EveryKernelAgreesOnCoreWebGpu) {
  gpu::DeviceOptions options = software();
  options.core_only = true;
  const auto ctx = Context::gpu(options, {});
  ASSERT_EQ(ctx->limits().max_binding_size, uint64_t{128} << 20);
  expect_all_pass(*ctx);
}

TEST(Verify, TheCpuAgrees) {
  const auto ctx = Context::cpu({});
  expect_all_pass(*ctx);
}

// Every operation that splits its tensors meets tensors larger than a binding. Shapes whose 64 rows
// (or a table that is not split) exceed a binding are refused by name.
TEST(Verify, KernelsAgreeWhenTensorsExceedABinding) {
  gpu::DeviceOptions options = software();
  options.max_binding_size = 32 << 10;
  const auto ctx = Context::gpu(options, {});
  std::vector<VerifyCase> cases;
  for (VerifyFamily family :
       {add_norm_cases, add_rope_cases, add_elementwise_cases, add_dropout_cases,
        add_embedding_cases, add_loss_cases, add_optimizer_cases}) {
    family(*ctx, VerifyLevel::kQuick, cases);
  }
  size_t passed = 0;
  for (const VerifyCase& c : cases) {
    const VerifyResult result = run_case(c, *ctx);
    if (result.passed) {
      ++passed;
    } else {
      EXPECT_NE(result.where.find("binds at most"), std::string::npos) << describe(result);
    }
  }
  EXPECT_GT(passed, 80u);
}

TEST(Verify, AWrongResultFails) {
  VerifyCheck check("kernel", "what", "core");
  check.compare("y", std::vector<float>{1.0f, 2.0f}, std::vector<double>{1.0, 2.5},
                [](size_t) { return 0.25; });
  const VerifyResult result = check.result();
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.worst_error, 0.5);
  EXPECT_EQ(result.where, "y[1] = 2, expected 2.5");
}

TEST(Verify, ANumberThatIsNotFiniteFails) {
  VerifyCheck check("kernel", "what", "core");
  check.compare("y", std::vector<float>{std::numeric_limits<float>::quiet_NaN()},
                std::vector<double>{0.0}, [](size_t) { return 1e30; });
  EXPECT_FALSE(check.result().passed);
}

TEST(Verify, AConditionThatDoesNotHoldFails) {
  VerifyCheck check("kernel", "what", "core");
  check.measure("x", 0.0, 1.0);
  EXPECT_TRUE(check.result().passed);
  check.require(false, "gradient is exactly 0");
  EXPECT_FALSE(check.result().passed);
  EXPECT_EQ(check.result().where, "not so: gradient is exactly 0");
}

}  // namespace
}  // namespace wgrad::ops
