#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/gpu_testing.h"
#include "gpu/prelude.h"
#include "gpu/wgsl_interface.h"
#include "gpu/wgsl_lint.h"

namespace wgrad::gpu {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(WgslInterface, HoldsWhatTheEntryPointAndItsFunctionsUse) {
  const char* const text = R"(
enable f16;
// @group(0) @binding(7) var<storage, read_write> in_a_comment: u32; first
/* second /* nested */ third @binding(9) var<uniform> also: u32; */
struct Parameters { n: u32, a: array<vec4<f32>, 3> }
const first = 1u;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@binding(1) @group(0) var<storage,read_write> y : array<atomic<u32>>;
@group(0) @binding(2u) var<storage> z: array<f32>;
@group(0) @binding(3) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<uniform> other: vec4<u32>;
var<workgroup> shared_values: array<f32, 4 * 16>;
var<private> mine: f32;
fn helper(i: u32) -> f32 { if i > 0u { return z[i]; } return inner(); }
fn inner() -> f32 { return f32(parameters.n); }
@compute @workgroup_size(64, 1) fn first(@builtin(local_invocation_index) i: u32) {
  shared_values[i] = helper(i) + x[0].x;
  atomicAdd(&y[0], 1u);
}
@compute @workgroup_size(1) fn second() { let q = x[other.x]; }
@compute @workgroup_size(1) fn third() { mine = 1.0; }
)";
  WgslInterface first = read_wgsl_interface(text, "first");
  EXPECT_TRUE(first.found);
  EXPECT_EQ(first.storage_count, 3u);
  EXPECT_EQ(first.used, 0b111u);
  EXPECT_EQ(first.writable, 0b010u);
  EXPECT_TRUE(first.has_uniform);
  EXPECT_EQ(first.uniform_binding, 3u);

  WgslInterface second = read_wgsl_interface(text, "second");
  EXPECT_EQ(second.storage_count, 1u);
  EXPECT_EQ(second.writable, 0u);
  EXPECT_EQ(second.uniform_binding, 1u);

  WgslInterface third = read_wgsl_interface(text, "third");
  EXPECT_TRUE(third.found);
  EXPECT_EQ(third.storage_count, 0u);
  EXPECT_FALSE(third.has_uniform);
  EXPECT_FALSE(read_wgsl_interface(text, "fourth").found);
}

TEST(WgslInterface, MembersParametersAndLocalsNameNothingOfTheModule) {
  const char* const text = R"(
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
fn half(y: f32) -> f32 { return y * 0.5; }
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
  let x = x[id.y];
  for (var z = 0u; z < id.z; z++) { half(x); }
}
)";
  const WgslInterface main = read_wgsl_interface(text, "main");
  EXPECT_EQ(main.used, 0b001u);
  EXPECT_EQ(main.writable, 0u);
}

TEST(WgslInterface, OfBrokenTextIsSomeAnswer) {
  for (const char* text :
       {"", "/", "/*", "//", "@", "@binding(", "@binding(99999999999) var<storage> x: u32;", "var<",
        "fn", "fn main", "fn main() {", "fn main() { x", "} } }",
        "@group(0) @binding(0) var<storage"}) {
    read_wgsl_interface(text, "main");
  }
}

TEST(Prelude, WritesExtensionsAliasesConstantsAndLibraries) {
  Prelude prelude;
  EXPECT_EQ(prelude.text(), "");
  prelude.f16 = prelude.subgroups = prelude.subgroup_matrix = true;
  prelude.aliases = {{"storage_t", "f16"}};
  prelude.constants = {{"kTile", 16}};
  EXPECT_EQ(prelude.text(),
            "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n"
            "diagnostic(off, chromium.subgroup_matrix_uniformity);\nalias storage_t = f16;\n"
            "const kTile = 16u;\n");
  prelude.libraries = {"lib_reduce_core"};
  EXPECT_THAT(prelude.text(), HasSubstr("fn workgroup_sum("));
  prelude.libraries = {"lib_absent"};
  EXPECT_THAT(error_text([&] { prelude.text(); }), HasSubstr("lib_absent"));
}

/// Reduces each workgroup's values twice in a row, by sum and by maximum, with both libraries.
KernelSpec reduction(std::string_view library, uint32_t workgroup_size) {
  Prelude prelude;
  prelude.subgroups = library == "lib_reduce_subgroups";
  prelude.constants = {{"kWorkgroupSize", workgroup_size}};
  prelude.libraries = {library};
  KernelSpec kernel = generated("reduction", R"(
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(kWorkgroupSize)
fn main(@builtin(global_invocation_id) id: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let v = x[id.x];
  let sum = workgroup_sum(v, lane);
  let negated = workgroup_sum(-v, lane);
  let largest = workgroup_max(v, lane);
  let smallest = -workgroup_max(-v, lane);
  out[id.x] = vec4<f32>(sum, negated, largest, smallest);
}
)");
  kernel.prelude = prelude.text();
  return kernel;
}

TEST(ReduceLibrary, SumsAndMaximaAgreeWithTheHostForAllInvocations) {
  Device device(software());
  constexpr uint32_t kGroups = 9;
  for (std::string_view library : {"lib_reduce_core", "lib_reduce_subgroups"}) {
    for (uint32_t size : {1u, 17u, 64u, 97u, 256u}) {
      if (library == "lib_reduce_subgroups" && size % device.info().features.subgroup_max_size) {
        continue;
      }
      std::vector<float> values(kGroups * size);
      for (size_t i = 0; i < values.size(); ++i) {
        const double angle = 1.7 * static_cast<double>(i);
        values[i] =
            static_cast<float>(std::sin(angle) * std::pow(10.0, static_cast<double>(i % 11) - 5));
      }
      Buffer x = make_buffer(device, values), out = device.allocate(values.size() * 16, "out");
      const Binding bindings[] = {all(x), all(out)};
      device.dispatch(reduction(library, size), bindings, 0b10, {}, {kGroups});
      std::vector<float> seen = contents<float>(device, out, values.size() * 4);
      for (uint32_t g = 0; g < kGroups; ++g) {
        auto begin = values.begin() + g * size, end = begin + size;
        double sum = 0, magnitude = 0;
        for (auto v = begin; v != end; ++v) sum += *v, magnitude += std::fabs(*v);
        // Each value passes through fewer than `size` additions, each off by half an ulp.
        const double bound =
            size * 0.5 * std::numeric_limits<float>::epsilon() * magnitude * 1.0001;
        for (uint32_t lane = 0; lane < size; ++lane) {
          const float* r = &seen[(g * size + lane) * 4];
          ASSERT_NEAR(r[0], sum, bound) << library << " " << size;
          ASSERT_EQ(r[0], seen[g * size * 4]) << library << " " << size << " lane " << lane;
          ASSERT_EQ(r[1], -r[0]) << library << " " << size;
          ASSERT_EQ(r[2], *std::max_element(begin, end)) << library << " " << size;
          ASSERT_EQ(r[3], *std::min_element(begin, end)) << library << " " << size;
        }
      }
    }
  }
}

TEST(WgslLint, AcceptsTheLibrariesAndRefusesBrokenText) {
  if (!has_tint()) GTEST_SKIP() << "tint is not on the PATH";
  const std::vector<KernelSpec> kernels = {reduction("lib_reduce_core", 256),
                                           reduction("lib_reduce_subgroups", 256)};
  EXPECT_THAT(lint(kernels), IsEmpty());
  const std::vector<KernelSpec> broken = {generated("broken", "fn main() { let x: u32 = 1.5; }")};
  ASSERT_EQ(lint(broken).size(), 1u);
  EXPECT_THAT(lint(broken)[0], HasSubstr("broken.main"));
  for (const std::string& file : files_without_kernel(kernels)) {
    EXPECT_NE(file.substr(0, 10), "lib_reduce");
  }
}

}  // namespace
}  // namespace wgrad::gpu
