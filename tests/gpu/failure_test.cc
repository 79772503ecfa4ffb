#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "gpu/gpu_testing.h"
#include "gpu/testing.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const char* const kStore = R"(
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { out[0] = 1u; }
)";

TEST(Failure, OfACompileNamesKernelPlaceAndLine) {
  for (bool checked : {true, false}) {
    Device device(software(checked));
    Buffer out = device.allocate(4, "out");
    const Binding bindings[] = {all(out)};
    KernelSpec kernel = generated("broken", R"(@group(0) @binding(0)
var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() {
  out[0] = missing_name;
}
)");
    kernel.prelude = "const kOne = 1u;\nconst kTwo = 2u;\n";
    std::string text = error_text([&] { device.dispatch(kernel, bindings, 0b1, {}, {}); });
    EXPECT_THAT(text, AllOf(HasSubstr("kernel 'broken.main'"), HasSubstr("broken.wgsl:4:12"),
                            HasSubstr("out[0] = missing_name;"), HasSubstr("unresolved")));
    // The device stays usable.
    device.dispatch(generated("store", kStore), bindings, 0b1, {}, {});
    EXPECT_EQ(contents<uint32_t>(device, out, 1)[0], 1u);

    kernel.prelude = "const kOne = 1u;\nconst kTwo = nothing;\n";
    EXPECT_THAT(error_text([&] { device.dispatch(kernel, bindings, 0b1, {}, {}); }),
                HasSubstr("prelude:2:14: `const kTwo = nothing;`"));
  }
}

TEST(Failure, OfAPipelineNamesTheKernel) {
  Device device(software());
  Buffer out = device.allocate(4, "out");
  const Binding bindings[] = {all(out)};
  KernelSpec kernel = generated("store", kStore, "absent");
  EXPECT_THAT(error_text([&] { device.dispatch(kernel, bindings, 0b1, {}, {}); }),
              AllOf(HasSubstr("kernel 'store.absent'"), HasSubstr("no such entry point")));
  kernel = generated("store", kStore);
  kernel.overrides = {{"kUnknown", 1}};
  EXPECT_THAT(error_text([&] { device.dispatch(kernel, bindings, 0b1, {}, {}); }),
              AllOf(HasSubstr("kernel 'store.main'"), HasSubstr("kUnknown")));
  KernelSpec file;
  file.source = "no_such_file";
  file.entry_point = "main";
  EXPECT_THAT(error_text([&] { device.dispatch(file, bindings, 0b1, {}, {}); }),
              HasSubstr("kernel 'no_such_file'"));
}

TEST(Failure, OfCompilingAheadIsThrownAndTheOthersAreUsable) {
  Device device(software());
  std::vector<KernelSpec> kernels;
  for (uint32_t i = 0; i < 12; ++i) {
    kernels.push_back(generated("store", kStore));
    kernels.back().prelude = "const kVariant = " + std::to_string(i) + "u;\n";
  }
  kernels.push_back(kernels.front());
  device.compile(kernels);
  EXPECT_EQ(device.statistics().pipelines, 12u);
  device.compile(kernels);
  EXPECT_EQ(device.statistics().pipelines, 12u);
  Buffer out = device.allocate(4, "out");
  const Binding bindings[] = {all(out)};
  device.dispatch(kernels[3], bindings, 0b1, {}, {});
  EXPECT_EQ(device.statistics().pipelines, 12u);
  EXPECT_EQ(contents<uint32_t>(device, out, 1)[0], 1u);

  kernels.push_back(generated("store", kStore));
  kernels.back().overrides = {{"kUnknown", 1}};
  EXPECT_THAT(error_text([&] { device.compile(kernels); }), HasSubstr("kernel 'store.main'"));
  kernels.back() = generated("broken", "fn main( {}");
  EXPECT_THAT(error_text([&] { device.compile(kernels); }), HasSubstr("broken.wgsl:1"));
}

TEST(Failure, OfValidationIsOneErrorAndPasses) {
  Device device(software());
  Buffer out = device.allocate(512, "out");
  // The same words written through two bindings at once.
  const KernelSpec kernel = generated("aliased", R"(
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;
@compute @workgroup_size(1) fn main() { a[0] = 1u; b[0] = 2u; }
)");
  const Binding bindings[] = {all(out), all(out)};
  std::string text = error_text([&] {
    device.dispatch(kernel, bindings, 0b11, {}, {});
    device.wait();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("device 'llvmpipe"), HasSubstr("alias")));
  const Binding one[] = {all(out)};
  device.dispatch(generated("store", kStore), one, 0b1, {}, {});
  EXPECT_EQ(contents<uint32_t>(device, out, 1)[0], 1u);
}

TEST(Failure, OfTheDeviceIsSaidByEveryCallAfterIt) {
  for (bool checked : {true, false}) {
    std::optional<Buffer> survivor;
    {
      Device device(software(checked));
      Buffer out = device.allocate(4, "out");
      const Binding bindings[] = {all(out)};
      device.dispatch(generated("store", kStore), bindings, 0b1, {}, {});
      const uint64_t ticket = device.start_read(all(out));
      lose_device(device, "the test pulled the plug");
      uint32_t value = 0;
      const auto into = std::as_writable_bytes(std::span(&value, 1));
      const auto lost = AllOf(HasSubstr("the device was lost: "),
                              HasSubstr("the test pulled the plug"), HasSubstr("--resume"));
      EXPECT_THAT(error_text([&] { device.finish_read(ticket, into); }), lost);
      EXPECT_THAT(error_text([&] { device.read(all(out), into); }), lost);
      EXPECT_THAT(error_text([&] { device.wait(); }), lost);
      EXPECT_THAT(error_text([&] { device.allocate(4, "more"); }), lost);
      EXPECT_THAT(error_text([&] { device.upload(all(out), into); }), lost);
      EXPECT_THAT(
          error_text([&] { device.dispatch(generated("store", kStore), bindings, 0b1, {}, {}); }),
          lost);
      survivor = std::move(out);
    }
    EXPECT_EQ(survivor->size(), 4u);
  }
}

TEST(Failure, OfABufferPastTheLimitNamesItAndWhatToDo) {
  Device device(software());
  const uint64_t before = device.allocated_bytes();
  const uint64_t bytes = device.info().limits.max_buffer_size + 1;
  for (uint64_t size : {bytes, ~uint64_t{0}}) {
    EXPECT_THAT(error_text([&] { device.allocate(size, "activations"); }),
                AllOf(HasSubstr("'activations' needs " + std::to_string(size) + " bytes"),
                      HasSubstr("--batch-size")));
  }
  EXPECT_EQ(device.allocated_bytes(), before);
}

TEST(Failure, OfMemoryNamesTheBufferItsSizeAndWhatToDo) {
  Device device(software());
  Buffer kept = device.allocate(4096, "kept");
  const uint64_t before = device.allocated_bytes();
  pretend_exhausted(device, true);
  std::string text = error_text([&] { device.allocate(4099, "logits"); });
  pretend_exhausted(device, false);
  EXPECT_THAT(text, AllOf(HasSubstr("out of memory for 'logits': 4100 bytes"),
                          HasSubstr("beside " + std::to_string(before) + " bytes in use"),
                          HasSubstr("--recompute block"), HasSubstr("--method qlora")));
  EXPECT_EQ(device.allocated_bytes(), before);
  // The device goes on.
  device.upload(all(kept), std::vector<std::byte>(4096, std::byte{9}));
  EXPECT_EQ(contents<uint8_t>(device, kept, 1)[0], 9u);
}

TEST(Memory, IsCountedToTheByte) {
  Device device(software());
  const auto buffers = [&] {
    return device.allocated_bytes() - device.statistics().internal_bytes;
  };
  EXPECT_EQ(buffers(), 0u);
  EXPECT_EQ(device.statistics().internal_bytes, device.allocated_bytes());
  {
    Buffer a = device.allocate(1000, "a"), b = device.allocate(1001, "b");
    EXPECT_EQ(a.size(), 1000u);
    EXPECT_EQ(b.size(), 1004u);
    EXPECT_EQ(buffers(), 2004u);
    Buffer c = std::move(a);
    EXPECT_EQ(buffers(), 2004u);
    b = device.allocate(8, "b");
    EXPECT_EQ(buffers(), 1008u);
    // Both buffers of `b` were alive at once.
    EXPECT_EQ(device.peak_allocated_bytes(), device.statistics().internal_bytes + 2012);
    device.reset_peak();
    EXPECT_EQ(device.peak_allocated_bytes(), device.allocated_bytes());
  }
  EXPECT_EQ(buffers(), 0u);
  const uint64_t before = device.statistics().internal_bytes;
  Buffer d = make_buffer(device, std::vector<float>(1000, 1.0f));
  EXPECT_EQ(contents<float>(device, d, 1000).front(), 1.0f);
  EXPECT_GT(device.statistics().internal_bytes, before);
  EXPECT_EQ(buffers(), 4000u);
}

}  // namespace
}  // namespace wgrad::gpu
