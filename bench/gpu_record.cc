// What a dispatch costs the recording thread: its processor time from the call to the last submit,
// when pipeline and bind group are cached, with the submits that come by themselves; and the time
// on the clock until all has run.
// Usage: bench_gpu_record [device], where device is as for wgrad's --device; default auto.

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "wgrad/error.h"

namespace {

using wgrad::gpu::Binding;
using wgrad::gpu::Buffer;
using wgrad::gpu::Device;
using wgrad::gpu::KernelSpec;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDispatches = 20000;
constexpr int kRounds = 7;

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

KernelSpec kernel(uint32_t variant, size_t text_bytes) {
  KernelSpec k;
  k.source = "record";
  k.entry_point = "main";
  k.prelude = "const kVariant = " + std::to_string(variant) + "u;\n";
  k.generated_text = R"(
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> n: vec4<u32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
  if i < n.x { out[i] = x[i] + y[i] + f32(kVariant); }
}
)";
  while (k.generated_text.size() < text_bytes) k.generated_text += "// a longer text to compare\n";
  return k;
}

/// The median over rounds of the processor seconds a dispatch takes to record, and of those until
/// all ran.
void measure(Device& device, const char* name, const std::vector<KernelSpec>& kernels) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 16; ++i) buffers.push_back(device.allocate(1024, "record"));
  const std::array<uint32_t, 4> parameters = {64, 0, 0, 0};
  std::vector<double> recorded, done;
  for (int round = 0; round <= kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    const double thread_begin = thread_seconds();
    for (uint32_t i = 0; i < kDispatches; ++i) {
      const Binding bindings[] = {{&buffers[i % 5], 0, 1024},
                                  {&buffers[5 + i % 5], 0, 1024},
                                  {&buffers[10 + i % 6], 0, 1024}};
      device.dispatch(kernels[i % kernels.size()], bindings, 0b100,
                      std::as_bytes(std::span(parameters)), {});
    }
    device.submit();
    const double record = thread_seconds() - thread_begin;
    device.wait();
    if (round == 0) continue;  // compiles and fills the caches
    recorded.push_back(record / kDispatches);
    done.push_back(seconds_since(begin) / kDispatches);
  }
  std::sort(recorded.begin(), recorded.end());
  std::sort(done.begin(), done.end());
  std::printf("%-28s record %6.2f us   until done %6.2f us\n", name, recorded[kRounds / 2] * 1e6,
              done[kRounds / 2] * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    wgrad::gpu::DeviceOptions options;
    if (argc > 1) options.selector = argv[1];
    Device device(options);
    std::printf("%s, a dispatch of %u, median of %d rounds\n", device.info().name.c_str(),
                kDispatches, kRounds);
    measure(device, "one kernel", {kernel(0, 0)});
    measure(device, "eight kernels in turn",
            {kernel(0, 0), kernel(1, 0), kernel(2, 0), kernel(3, 0), kernel(4, 0), kernel(5, 0),
             kernel(6, 0), kernel(7, 0)});
    measure(device, "two kernels of 10 kB", {kernel(8, 10000), kernel(9, 10000)});
  } catch (const wgrad::Error& e) {
    std::fprintf(stderr, "bench_gpu_record: %s\n", e.what());
    return 1;
  }
}
