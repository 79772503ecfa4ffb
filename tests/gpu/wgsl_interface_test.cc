#include "gpu/wgsl_interface.h"

#include <gtest/gtest.h>

namespace wgrad::gpu {
namespace {

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

}  // namespace
}  // namespace wgrad::gpu
