#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gpu/gpu_testing.h"
#include "gpu/testing.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

using testing::HasSubstr;

const char* const kSaxpy = R"(
struct Parameters { n: u32, a: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> parameters: Parameters;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 64u + lane;
  if i < parameters.n { y[i] += parameters.a * x[i]; }
}
)";

struct SaxpyParameters {
  uint32_t n;
  float a;
};

void saxpy(Device& device, const Buffer& x, const Buffer& y, uint32_t n, float a) {
  const Binding bindings[] = {all(x), all(y)};
  device.dispatch(generated("saxpy", kSaxpy), bindings, 0b10, bytes_of(SaxpyParameters{n, a}),
                  fold_workgroups((n + 63) / 64));
}

/// Adds 1 to the word that stands at the group's number, and marks groups past the count.
const char* const kCountGroups = R"(
@group(0) @binding(0) var<storage, read_write> seen: array<u32>;
@group(0) @binding(1) var<uniform> count: u32;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = group.x + group.y * groups.x;
  if i < count { seen[i] += 1u; }
}
)";

TEST(Dispatch, ComputesWithBindingsAndParametersForOddSizes) {
  Device device(software());
  for (uint32_t n : {1u, 63u, 64u, 65u, 1009u}) {
    std::vector<float> xs(n), ys(n);
    for (uint32_t i = 0; i < n; ++i) {
      xs[i] = static_cast<float>(i);
      ys[i] = 1.0f;
    }
    Buffer x = make_buffer(device, xs), y = make_buffer(device, ys);
    saxpy(device, x, y, n, 3.0f);
    std::vector<float> out = contents<float>(device, y, n);
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(out[i], 1.0f + 3.0f * xs[i]) << n << " at " << i;
  }
}

TEST(Dispatch, ReachesEveryGroupPastTheLimitOnADimension) {
  Device device(software());
  for (uint32_t count : {65535u, 65536u, 140001u}) {
    Buffer seen = device.allocate(count * 4 + 4, "seen");
    const Binding bindings[] = {all(seen)};
    device.dispatch(generated("count_groups", kCountGroups), bindings, 0b1, bytes_of(count),
                    fold_workgroups(count));
    std::vector<uint32_t> out = contents<uint32_t>(device, seen, count + 1);
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), uint64_t{0}), count);
    EXPECT_EQ(*std::min_element(out.begin(), out.end() - 1), 1u);
    EXPECT_EQ(out[count], 0u);
  }
}

TEST(Dispatch, FoldsWorkgroupsIntoTwoDimensions) {
  for (uint64_t count :
       {uint64_t{0}, uint64_t{1}, uint64_t{65535}, uint64_t{65536}, uint64_t{65535} * 65535}) {
    Workgroups w = fold_workgroups(count);
    EXPECT_GE(uint64_t{w.x} * w.y, count);
    EXPECT_LE(w.x, 65535u);
    EXPECT_LE(w.y, 65535u);
    EXPECT_EQ(w.z, 1u);
  }
  EXPECT_THROW(fold_workgroups(uint64_t{65535} * 65535 + 1), Error);
}

TEST(Dispatch, KeepsTheParametersOfThousandsOfDispatchesApart) {
  for (bool checked : {true, false}) {
    Device device(software(checked));
    constexpr uint32_t kDispatches = 10007;
    KernelSpec kernel = generated("append", R"(
struct Parameters { at: u32, value: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> parameters: Parameters;
@compute @workgroup_size(1)
fn main() { out[parameters.at] = parameters.value + out[parameters.at - 1u]; }
)");
    Buffer out = device.allocate((kDispatches + 1) * 4, "out");
    const Binding bindings[] = {all(out)};
    for (uint32_t i = 1; i <= kDispatches; ++i) {
      const uint32_t parameters[] = {i, i % 7};
      device.dispatch(kernel, bindings, 0b1, std::as_bytes(std::span(parameters)), {});
    }
    std::vector<uint32_t> values = contents<uint32_t>(device, out, kDispatches + 1);
    uint32_t sum = 0;
    for (uint32_t i = 1; i <= kDispatches; ++i) ASSERT_EQ(values[i], sum += i % 7) << i;
    EXPECT_EQ(device.statistics().dispatches, kDispatches);
    EXPECT_EQ(device.statistics().pipelines, 1u);
    EXPECT_EQ(device.statistics().bind_groups, 1u);
    EXPECT_GT(device.statistics().submits, 1u);
  }
}

TEST(Dispatch, OfNoWorkgroupsDoesNothing) {
  Device device(software());
  Buffer seen = device.allocate(4, "seen");
  const Binding bindings[] = {all(seen)};
  device.dispatch(generated("count_groups", kCountGroups), bindings, 0b1, bytes_of(uint32_t{1}),
                  fold_workgroups(0));
  EXPECT_EQ(contents<uint32_t>(device, seen, 1)[0], 0u);
}

TEST(Dispatch, TakesKernelsWithoutParameters) {
  Device device(software());
  Buffer out = device.allocate(4, "out");
  const Binding bindings[] = {all(out)};
  device.dispatch(generated("one", R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { out[0] += 5u; }
)"),
                  bindings, 0b1, {}, {});
  EXPECT_EQ(contents<uint32_t>(device, out, 1)[0], 5u);
}

TEST(Dispatch, AppliesOverridesAndPrelude) {
  Device device(software());
  Buffer out = device.allocate(4, "out");
  const Binding bindings[] = {all(out)};
  KernelSpec kernel = generated("constants", R"(
override kFactor: u32 = 1;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { out[0] = kFactor * kBase; }
)");
  for (uint32_t base : {10u, 100u}) {
    for (uint32_t factor : {2u, 3u}) {
      kernel.prelude = "const kBase = " + std::to_string(base) + "u;\n";
      kernel.overrides = {{"kFactor", factor}};
      device.dispatch(kernel, bindings, 0b1, {}, {});
      EXPECT_EQ(contents<uint32_t>(device, out, 1)[0], base * factor);
    }
  }
  EXPECT_EQ(device.statistics().pipelines, 4u);
}

TEST(Dispatch, SharesBindGroupsAndDropsThoseOfDeadBuffers) {
  Device device(software());
  constexpr uint32_t kCount = 40;
  Buffer x = make_buffer(device, std::vector<float>(kCount, 1.0f));
  for (int round = 0; round < 200; ++round) {
    Buffer y = make_buffer(device, std::vector<float>(kCount, 2.0f));
    saxpy(device, x, y, kCount, 1.0f);
    saxpy(device, x, y, kCount, 1.0f);
    EXPECT_EQ(cached_bind_groups(device), 1u);
    if (round % 50 == 0) {
      EXPECT_EQ(contents<float>(device, y, kCount), std::vector<float>(kCount, 4.0f));
    }
  }
  EXPECT_EQ(cached_bind_groups(device), 0u);
  EXPECT_EQ(device.statistics().bind_groups, 200u);
  // Work on buffers that died before it was submitted still runs to its end.
  Buffer z = make_buffer(device, std::vector<float>(kCount, 0.0f));
  {
    Buffer temporary = make_buffer(device, std::vector<float>(kCount, 7.0f));
    saxpy(device, temporary, z, kCount, 2.0f);
  }
  EXPECT_EQ(contents<float>(device, z, kCount), std::vector<float>(kCount, 14.0f));
}

TEST(Dispatch, RefusesWhatTheKernelsTextDoesNotDeclare) {
  for (bool checked : {true, false}) {
    Device device(software(checked));
    Buffer a = device.allocate(1024, "a"), b = device.allocate(1024, "b");
    const SaxpyParameters parameters{4, 1.0f};
    auto attempt = [&](std::vector<Binding> bindings, uint32_t writable,
                       std::span<const std::byte> bytes, Workgroups groups = {}) {
      return error_text(
          [&] { device.dispatch(generated("saxpy", kSaxpy), bindings, writable, bytes, groups); });
    };
    const auto bytes = bytes_of(parameters);
    EXPECT_THAT(attempt({all(a)}, 0b10, bytes), HasSubstr("kernel 'saxpy.main': 1 bindings"));
    EXPECT_THAT(attempt({all(a), all(b)}, 0b01, bytes), HasSubstr("marked writable"));
    EXPECT_THAT(attempt({all(a), all(b)}, 0b10, {}), HasSubstr("0 bytes of parameters"));
    EXPECT_THAT(attempt({{&a, 4, 8}, all(b)}, 0b10, bytes), HasSubstr("multiple of 256"));
    EXPECT_THAT(attempt({{&a, 256, 1024}, all(b)}, 0b10, bytes), HasSubstr("256 to 1280"));
    EXPECT_THAT(attempt({{&a, 0, 6}, all(b)}, 0b10, bytes), HasSubstr("a binding of 6 bytes"));
    EXPECT_THAT(attempt({{&a, 0, ~uint64_t{0}}, all(b)}, 0b10, bytes), HasSubstr("of a buffer"));
    EXPECT_THAT(attempt({all(a), all(b)}, 0b10, bytes, {65536, 1, 1}), HasSubstr("at most 65535"));
    EXPECT_EQ(attempt({all(a), all(b)}, 0b10, bytes), "");
    device.wait();
  }
}

TEST(Dispatch, HonoursALoweredLimitOnBindings) {
  DeviceOptions options = software();
  options.max_binding_size = 4096;
  Device device(options);
  EXPECT_EQ(device.info().limits.max_binding_size, 4096u);
  Buffer x = device.allocate(8192, "x"), y = device.allocate(4096, "y");
  const Binding bindings[] = {all(x), all(y)};
  EXPECT_THAT(error_text([&] {
                device.dispatch(generated("saxpy", kSaxpy), bindings, 0b10,
                                bytes_of(SaxpyParameters{4, 1.0f}), {});
              }),
              HasSubstr("from 4 to 4096"));
}

TEST(Dispatch, IsTimedOneByOne) {
  Device device(software());
  ASSERT_TRUE(device.info().features.timestamps);
  constexpr uint32_t kCount = 100000, kDispatches = 600;
  Buffer x = make_buffer(device, std::vector<float>(kCount, 1.0f));
  Buffer y = make_buffer(device, std::vector<float>(kCount, 0.0f));
  saxpy(device, x, y, kCount, 1.0f);
  for (int round = 0; round < 2; ++round) {
    device.start_timing();
    for (uint32_t i = 0; i < kDispatches; ++i) saxpy(device, x, y, i % 2 ? kCount : 1, 1.0f);
    std::vector<DispatchTime> times = device.take_times();
    ASSERT_EQ(times.size(), kDispatches);
    double small = 0, large = 0;
    for (uint32_t i = 0; i < kDispatches; ++i) {
      EXPECT_EQ(times[i].kernel, "saxpy.main");
      EXPECT_GE(times[i].seconds, 0.0);
      (i % 2 ? large : small) += times[i].seconds;
    }
    EXPECT_GT(large, small);
  }
  EXPECT_EQ(contents<float>(device, y, 2)[1], 1.0f + 2 * kDispatches / 2);
}

TEST(Dispatch, IsTimedByPass) {
  Device device(software());
  constexpr uint32_t kCount = 100000;
  Buffer x = make_buffer(device, std::vector<float>(kCount, 1.0f));
  Buffer y = make_buffer(device, std::vector<float>(kCount, 0.0f));
  saxpy(device, x, y, 1, 1.0f);
  device.start_timing(Timed::kPasses);
  for (int i = 0; i < 20; ++i) saxpy(device, x, y, kCount, 1.0f);
  device.fill_zero({&y, 0, y.size()});  // ends a pass
  saxpy(device, x, y, 1, 1.0f);
  device.submit();
  saxpy(device, x, y, 1, 1.0f);
  const std::vector<DispatchTime> times = device.take_times();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_GT(times[0].seconds, times[1].seconds);
  EXPECT_EQ(contents<float>(device, y, 2)[0], 2.0f);
}

}  // namespace
}  // namespace wgrad::gpu
