#include "train/verify_training.h"

#include <gtest/gtest.h>

#include <memory>

namespace wgrad::train {
namespace {

void expect_all_pass(Context& ctx) {
  for (const ops::VerifyCase& c : training_cases()) {
    const ops::VerifyResult result = ops::run_case(c, ctx);
    EXPECT_TRUE(result.passed) << result.what << ": error " << result.worst_error << ", bound "
                               << result.bound << ", " << result.where;
  }
}

TEST(VerifyTraining, HoldsOnTheCpu) { expect_all_pass(*Context::cpu({})); }

TEST(VerifyTraining, HoldsOnTheSoftwareDevice) {
  gpu::DeviceOptions options;
  options.selector = "software";
  options.checked = true;
  expect_all_pass(*Context::gpu(options, {}));
}

}  // namespace
}  // namespace wgrad::train
