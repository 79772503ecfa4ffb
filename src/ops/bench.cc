#include "ops/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ops/elementwise.h"

namespace wgrad::ops {

namespace {

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of `runs` runs.
double measure(Context& ctx, const std::function<void(Context&)>& run, int runs,
               bool device_clock) {
  if (!device_clock) {
    const double start = host_seconds();
    for (int i = 0; i < runs; ++i) run(ctx);
    ctx.wait();
    return host_seconds() - start;
  }
  ctx.device().start_timing(gpu::Timed::kPasses);
  for (int i = 0; i < runs; ++i) run(ctx);
  double total = 0;
  for (const gpu::DispatchTime& t : ctx.device().take_times()) total += t.seconds;
  return total;
}

/// Larger than any cache where the device is a real one.
BenchCase copy_case(const Context& ctx) {
  const int64_t elements =
      ctx.limits().max_binding_size > (uint64_t{1} << 30) ? int64_t{256} << 20 : int64_t{16} << 20;
  BenchCase c;
  c.name = fmt::format("copy {} MiB (a read and a write)", elements * 4 >> 20);
  c.bytes = 8.0 * static_cast<double>(elements);
  c.prepare = [elements](Context& ctx) {
    const Tensor from = ctx.allocate_zeroed({elements}, DType::kF32, "bench");
    const Tensor to = ctx.allocate({elements}, DType::kF32, "bench");
    return [from, to](Context& c) { copy(c, from, to); };
  };
  return c;
}

}  // namespace

BenchResult run_bench(Context& ctx, const BenchCase& c, double seconds) {
  constexpr int kMeasurements = 5;
  const std::function<void(Context&)> run = c.prepare(ctx);
  run(ctx);
  ctx.wait();
  int runs = 1;
  double spent = measure(ctx, run, 1, false);
  const double once = std::max(spent, 1e-6);
  for (; spent < seconds; spent += measure(ctx, run, runs, false)) {
    runs = std::clamp(static_cast<int>(seconds / 10 / once), 1, 20);
  }
  BenchResult result;
  result.name = c.name;
  result.device_clock = ctx.kind() == DeviceKind::kGpu && ctx.features().timestamps;
  // Copies are not dispatches: the device's clock does not see them.
  if (result.device_clock && measure(ctx, run, 1, true) == 0) result.device_clock = false;
  std::vector<double> times;
  for (int i = 0; i < kMeasurements; ++i) {
    times.push_back(measure(ctx, run, runs, result.device_clock) / runs);
  }
  std::nth_element(times.begin(), times.begin() + kMeasurements / 2, times.end());
  result.seconds = times[kMeasurements / 2];
  if (result.seconds <= 0) return result;
  result.tflops = c.flops / result.seconds * 1e-12;
  result.gigabytes_per_second = c.bytes / result.seconds * 1e-9;
  return result;
}

std::vector<BenchCase> bench_cases(const Context& ctx) {
  std::vector<BenchCase> cases = {copy_case(ctx)};
  for (BenchCase& c : memory_bench_cases(ctx)) cases.push_back(std::move(c));
  for (BenchCase& c : matmul_bench_cases(ctx)) cases.push_back(std::move(c));
  for (BenchCase& c : attention_bench_cases(ctx)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace wgrad::ops
