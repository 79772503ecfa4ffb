#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gpu/gpu_testing.h"
#include "gpu/testing.h"

namespace wgrad::gpu {
namespace {

using testing::HasSubstr;

std::vector<uint8_t> pattern(size_t count, uint32_t seed) {
  std::vector<uint8_t> data(count);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

TEST(Transfer, RoundTripsSizesThatAreNoMultipleOfFour) {
  Device device(software());
  for (size_t bytes : {1, 2, 3, 4, 5, 7, 255, 257, 4099}) {
    std::vector<uint8_t> data = pattern(bytes, static_cast<uint32_t>(bytes));
    Buffer buffer = make_buffer(device, data);
    EXPECT_EQ(contents<uint8_t>(device, buffer, bytes), data) << bytes;
  }
}

TEST(Transfer, ZeroesTheRestOfTheLastWordAndNothingBeyond) {
  Device device(software());
  Buffer buffer = make_buffer(device, std::vector<uint8_t>(16, 0xFF));
  const std::vector<uint8_t> data = {1, 2, 3, 4, 5};
  device.upload({&buffer, 4, data.size()}, std::as_bytes(std::span(data)));
  EXPECT_EQ(contents<uint8_t>(device, buffer, 16),
            (std::vector<uint8_t>{255, 255, 255, 255, 1, 2, 3, 4, 5, 0, 0, 0, 255, 255, 255, 255}));
}

TEST(Transfer, StartsBuffersAtZero) {
  for (bool checked : {true, false}) {
    Device device(software(checked));
    {
      Buffer used = make_buffer(device, std::vector<uint8_t>(4096, 0xAB));
      device.wait();
    }
    Buffer fresh = device.allocate(4096, "fresh");
    EXPECT_EQ(contents<uint8_t>(device, fresh, 4096), std::vector<uint8_t>(4096, 0));
  }
}

TEST(Transfer, HappensAtItsPlaceInTheRecording) {
  Device device(software());
  const KernelSpec add = generated("add", R"(
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
@group(0) @binding(2) var<uniform> at: u32;
@compute @workgroup_size(1) fn main() { sums[at] = x[0]; }
)");
  constexpr uint32_t kRounds = 1000;  // more than one submit
  Buffer x = device.allocate(4, "x"), sums = device.allocate(kRounds * 4, "sums");
  const Binding bindings[] = {all(x), all(sums)};
  for (uint32_t i = 0; i < kRounds; ++i) {
    const uint32_t value = 3 * i + 1;
    if (i % 3 == 0) {
      device.fill_zero(all(x));
    } else {
      device.upload(all(x), bytes_of(value));
    }
    device.dispatch(add, bindings, 0b10, bytes_of(i), {});
  }
  std::vector<uint32_t> out = contents<uint32_t>(device, sums, kRounds);
  for (uint32_t i = 0; i < kRounds; ++i) ASSERT_EQ(out[i], i % 3 == 0 ? 0 : 3 * i + 1) << i;
}

TEST(Transfer, TakesMoreThanTheStagingMemoryHolds) {
  Device device(software(/*checked=*/false));
  const uint64_t bytes = 2 * staging_limit() + 12345;
  std::vector<uint8_t> data = pattern(bytes, 7);
  Buffer buffer = make_buffer(device, data);
  EXPECT_EQ(contents<uint8_t>(device, buffer, bytes), data);
  // What the device holds for itself stays bounded: staging, two read-backs, parameters.
  EXPECT_LE(device.statistics().internal_bytes,
            staging_limit() + 2 * (uint64_t{16} << 20) + (1 << 20));
}

TEST(Transfer, CopiesRangesBetweenBuffers) {
  Device device(software());
  std::vector<uint32_t> data(64);
  std::iota(data.begin(), data.end(), 100u);
  Buffer a = make_buffer(device, data), b = device.allocate(256, "b");
  device.copy({&a, 16, 40}, {&b, 100, 40});
  std::vector<uint32_t> out = contents<uint32_t>(device, b, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i >= 25 && i < 35 ? 100 + i - 21 : 0) << i;
}

TEST(Transfer, CopiesWithinOneBuffer) {
  Device device(software());
  std::vector<uint32_t> data(64);
  std::iota(data.begin(), data.end(), 100u);
  Buffer a = make_buffer(device, data);
  device.copy({&a, 0, 32}, {&a, 128, 32});
  std::vector<uint32_t> out = contents<uint32_t>(device, a, 64);
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], i >= 32 && i < 40 ? data[i - 32] : data[i]) << i;
  }
}

TEST(Transfer, FinishesReadsInAnyOrder) {
  Device device(software());
  Buffer buffer = device.allocate(4, "value");
  std::vector<uint64_t> tickets;
  for (uint32_t i = 0; i < 20; ++i) {
    device.upload(all(buffer), bytes_of(i));
    tickets.push_back(device.start_read(all(buffer)));
  }
  for (uint32_t i = 20; i-- > 0;) {
    uint32_t value = 0;
    device.finish_read(tickets[i], std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(value, i);
  }
}

TEST(Transfer, RefusesATicketTwiceAndWrongSizes) {
  Device device(software());
  Buffer buffer = device.allocate(16, "value");
  uint32_t value = 0;
  const auto into = std::as_writable_bytes(std::span(&value, 1));
  uint64_t ticket = device.start_read({&buffer, 0, 4});
  device.finish_read(ticket, into);
  EXPECT_THAT(error_text([&] { device.finish_read(ticket, into); }), HasSubstr("not open"));
  ticket = device.start_read({&buffer, 0, 16});
  EXPECT_THAT(error_text([&] { device.finish_read(ticket, into); }),
              HasSubstr("16 bytes were read, 4 are asked for"));
  EXPECT_THAT(error_text([&] { device.read(all(buffer), into); }), HasSubstr("16 bytes into 4"));
  EXPECT_THAT(error_text([&] { device.upload(all(buffer), into); }), HasSubstr("4 bytes"));
  EXPECT_THAT(error_text([&] { device.upload({&buffer, 14, 4}, into); }), HasSubstr("multiple"));
  EXPECT_THAT(error_text([&] {
                device.copy({&buffer, 0, 8}, {&buffer, 12, 8});
              }),
              HasSubstr("12 to 20 of a buffer of 16"));
}

TEST(Transfer, OfNothingDoesNothing) {
  Device device(software());
  Buffer buffer = device.allocate(0, "empty");
  EXPECT_EQ(buffer.size(), 4u);
  device.upload({&buffer, 0, 0}, {});
  device.copy({&buffer, 0, 0}, {&buffer, 4, 0});
  device.fill_zero({&buffer, 0, 0});
  device.read({&buffer, 0, 0}, {});
  device.finish_read(device.start_read({&buffer, 0, 0}), {});
}

}  // namespace
}  // namespace wgrad::gpu
