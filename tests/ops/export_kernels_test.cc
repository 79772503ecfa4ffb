#include "ops/export_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ops/export_testing.h"
#include "ops/kernel_runner.h"
#include "ops/verify_exported.h"
#include "ops/workgroup_expression.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

/// A core WebGPU device and the kernels in a folder of their own.
class ExportedKernels : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    gpu::DeviceOptions options;
    options.selector = "software";
    options.checked = true;
    options.core_only = true;
    device_ = std::make_unique<gpu::Device>(options);
    folder_ = std::filesystem::temp_directory_path() / ("wgrad-export-" + std::to_string(getpid()));
    export_kernels(folder_);
    program_ = std::make_unique<ExportedProgram>(*device_, folder_);
  }
  static void TearDownTestSuite() {
    program_.reset();
    device_.reset();
    std::filesystem::remove_all(folder_);
  }

  static inline std::unique_ptr<gpu::Device> device_;
  static inline std::filesystem::path folder_;
  static inline std::unique_ptr<ExportedProgram> program_;
};

TEST_F(ExportedKernels, AreTenWithTheirOriginalInterfaces) {
  std::vector<std::string> interfaces;
  for (const auto& k : program_->manifest().at("kernels")) {
    std::string text = k.at("name").get<std::string>() + ":";
    for (const auto& b : k.at("bindings")) text += " " + b.at("name").get<std::string>();
    text += ";";
    size_t offset = 0;
    for (const auto& f : k.at("uniform").at("fields")) {
      text += " " + f.at("name").get<std::string>() + "." + f.at("type").get<std::string>();
      EXPECT_EQ(f.at("offset"), offset);
      offset += 4;
    }
    EXPECT_EQ(k.at("uniform").at("size"), offset);
    EXPECT_EQ(k.at("bindings").back().at("type"), "uniform");
    interfaces.push_back(text);
  }
  EXPECT_THAT(
      interfaces,
      testing::ElementsAre(
          "silu_backward: x dy dx params; n.u32",
          "gemm_backward_a: dC B dA params; M.u32 K.u32 N.u32",
          "gemm_backward_b: A dC dB params; M.u32 K.u32 N.u32",
          "rms_norm_backward: x g dy dx dg params; num_rows.u32 hidden_dim.u32 eps.f32 pad.u32",
          "rope_backward: dy dx params; num_heads.u32 head_dim.u32 seq_len.u32 theta_log2.f32",
          "softmax_backward: y dy dx params; num_rows.u32 row_len.u32",
          "cross_entropy_forward: logits labels losses logsumexp params; seq_len.u32 "
          "vocab_size.u32 loss_start.u32 loss_end.u32",
          "cross_entropy_backward: logits labels logsumexp params; seq_len.u32 vocab_size.u32 "
          "loss_start.u32 loss_end.u32 scale.f32",
          "adamw_step: p g m v params; n.u32 lr.f32 beta1.f32 beta2.f32 eps.f32 "
          "weight_decay.f32 bias_correction1.f32 bias_correction2.f32",
          "nf4_dequant: packed scales out params; n.u32 block_size.u32"));
}

TEST_F(ExportedKernels, AreReportedWhenTheFolderCannotBeMade) {
  EXPECT_THROW(export_kernels(folder_ / "manifest.json" / "below"), Error);
}

TEST_F(ExportedKernels, TakeBuffersOfTheSizesThatTheTableSays) {
  size_t seen = 0;
  const auto compare = [&](const std::string& name, ExportedBuffers& buffers,
                           const ExportedFields& fields) {
    for (const KernelBinding& b : kernel_named(name).bindings) {
      ASSERT_EQ(buffers.at(std::string(b.name)).size(),
                WorkgroupExpression(b.elements, fields).value())
          << name << ", " << b.name << " [" << b.elements << "]";
      ++seen;
    }
  };
  for (const ExportedCase& c : exported_cases()) run_exported(c, compare);
  EXPECT_GT(seen, 30u);
}

TEST_F(ExportedKernels, HaveSizesWithoutOverflowAndDivisionByZero) {
  const ExportedFields fields = {{"n", 4294967295.0}, {"zero", 0}};
  EXPECT_THROW(WorkgroupExpression("n*n*n", fields).value(), Error);
  EXPECT_THROW(WorkgroupExpression("n/zero", fields).value(), Error);
  EXPECT_THROW(WorkgroupExpression("ceil_div(n,zero)", fields).value(), Error);
  EXPECT_EQ(WorkgroupExpression("ceil_div(n,256)", fields).value(), 16777216u);
}

// The same checks are rows of `wgrad verify`.
TEST_F(ExportedKernels, ComputeWhatTheyPromiseFromTheirFilesAlone) {
  for (const ExportedCase& c : exported_cases()) {
    const VerifyResult r =
        run_exported(c, [](const std::string& name, ExportedBuffers& buffers,
                           const ExportedFields& fields) { program_->run(name, buffers, fields); });
    EXPECT_TRUE(r.passed) << r.kernel << ", " << r.what << ": " << r.where << ", error "
                          << r.worst_error << ", limit " << r.bound;
  }
}

}  // namespace
}  // namespace wgrad::ops
