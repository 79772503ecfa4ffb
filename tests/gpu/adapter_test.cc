#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "gpu/gpu_testing.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Adapter, IsListedWithWhatItCanDo) {
  std::vector<AdapterInfo> adapters = list_adapters();
  ASSERT_FALSE(adapters.empty()) << "tools/install-test-driver.sh installs one";
  for (const AdapterInfo& a : adapters) {
    EXPECT_FALSE(a.name.empty());
    EXPECT_FALSE(a.backend.empty());
    EXPECT_GE(a.limits.max_binding_size, uint64_t{128} << 20);
    EXPECT_GE(a.limits.max_storage_buffers, 8u);
  }
  EXPECT_TRUE(std::any_of(adapters.begin(), adapters.end(),
                          [](const AdapterInfo& a) { return a.is_software(); }));
}

TEST(Adapter, SoftwareIsChosenOnlyByItsName) {
  Device device(software());
  EXPECT_TRUE(device.info().is_software());
  EXPECT_THAT(device.info().name, HasSubstr("llvmpipe"));
  for (const char* selector : {"auto", "gpu", "gpu:llvmpipe"}) {
    DeviceOptions options;
    options.selector = selector;
    std::string text = error_text([&] {
      Device gpu(options);
      EXPECT_FALSE(gpu.info().is_software());
      throw input_error("device 'auto'", "a GPU was found");
    });
    EXPECT_THAT(text, HasSubstr("found"));
  }
}

TEST(Adapter, OfAnUnknownSelectorIsRefused) {
  for (const char* selector : {"", "cpu", "gpu0", "vulkan"}) {
    DeviceOptions options;
    options.selector = selector;
    EXPECT_THAT(error_text([&] { Device device(options); }),
                AllOf(HasSubstr(std::string("device '") + selector + "'"), HasSubstr("gpu:NAME")));
  }
  DeviceOptions options;
  options.selector = "gpu:no such card";
  EXPECT_THAT(error_text([&] { Device device(options); }), HasSubstr("llvmpipe"));
}

TEST(Adapter, ListIsEmptyWhereTheLoaderFindsNoDriver) {
  setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  EXPECT_TRUE(list_adapters().empty());
  EXPECT_THAT(error_text([] { Device device(software()); }),
              AllOf(HasSubstr("no WebGPU adapter was found"), HasSubstr("install")));
  DeviceOptions options;
  EXPECT_THAT(error_text([&] { Device device(options); }),
              AllOf(HasSubstr("no WebGPU adapter was found"), HasSubstr("--device cpu")));
  unsetenv("VK_DRIVER_FILES");
  unsetenv("VK_ICD_FILENAMES");
}

TEST(Adapter, LookupIsSilent) {
  testing::internal::CaptureStderr();
  list_adapters();
  Device device(software());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// A kernel that needs `extension`.
KernelSpec using_extension(const char* extension) {
  return generated("extension", std::string("enable ") + extension + R"(;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { out[0] = 1u; }
)");
}

bool compiles(Device& device, const KernelSpec& kernel) {
  return error_text([&] { device.compile(std::span(&kernel, 1)); }).empty();
}

TEST(Features, AreThoseThatTheDeviceGrants) {
  Device device(software());
  const Features& features = device.info().features;
  EXPECT_TRUE(features.shader_f16);
  EXPECT_TRUE(features.subgroups);
  EXPECT_GE(features.subgroup_min_size, 4u);
  EXPECT_GE(features.subgroup_max_size, features.subgroup_min_size);
  EXPECT_TRUE(compiles(device, using_extension("f16")));
  EXPECT_TRUE(compiles(device, using_extension("subgroups")));
}

TEST(Features, AreWithheldWhenTheOptionsSaySo) {
  DeviceOptions options = software();
  options.allow_f16 = false;
  {
    Device device(options);
    EXPECT_FALSE(device.info().features.shader_f16);
    EXPECT_FALSE(device.info().features.subgroup_matrix_f16);
    EXPECT_FALSE(compiles(device, using_extension("f16")));
    EXPECT_TRUE(compiles(device, using_extension("subgroups")));
  }
  options = software();
  options.allow_subgroups = false;
  Device device(options);
  EXPECT_FALSE(device.info().features.subgroups);
  EXPECT_EQ(device.info().features.subgroup_max_size, 0u);
  EXPECT_FALSE(compiles(device, using_extension("subgroups")));
  EXPECT_TRUE(compiles(device, using_extension("f16")));
}

TEST(Features, OfCoreAloneAreNoneAndLimitsAreTheDefaults) {
  DeviceOptions options = software();
  options.core_only = true;
  Device device(options);
  const Features& features = device.info().features;
  EXPECT_FALSE(features.shader_f16 || features.subgroups || features.subgroup_matrix_f16 ||
               features.timestamps);
  EXPECT_FALSE(compiles(device, using_extension("f16")));
  EXPECT_FALSE(compiles(device, using_extension("subgroups")));
  EXPECT_THAT(error_text([&] { device.start_timing(); }), HasSubstr("timestamp"));

  const Limits& limits = device.info().limits;
  EXPECT_EQ(limits.max_workgroup_memory, 16384u);
  EXPECT_EQ(limits.max_workgroup_invocations, 256u);
  EXPECT_EQ(limits.max_storage_buffers, 8u);
  EXPECT_EQ(limits.max_binding_size, uint64_t{128} << 20);
  EXPECT_EQ(limits.max_buffer_size, uint64_t{256} << 20);
  auto of_size = [](int invocations, int words) {
    return generated("size", "var<workgroup> w: array<u32, " + std::to_string(words) +
                                 ">;\n@group(0) @binding(0) var<storage, read_write> out: "
                                 "array<u32>;\n@compute @workgroup_size(" +
                                 std::to_string(invocations) +
                                 ") fn main() { w[1] = 1u; out[0] = w[1]; }\n");
  };
  EXPECT_TRUE(compiles(device, of_size(256, 4096)));
  EXPECT_FALSE(compiles(device, of_size(257, 4096)));
  EXPECT_FALSE(compiles(device, of_size(256, 4097)));
  Device whole(software());
  EXPECT_TRUE(compiles(whole, of_size(257, 4097)));
}

}  // namespace
}  // namespace wgrad::gpu
