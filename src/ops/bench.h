#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/context.h"

namespace wgrad::ops {

/// One thing to time on a device.
struct BenchCase {
  std::string name;  ///< "matmul_f16 NT 4096x4096x4096"
  double flops = 0;  ///< of one run; 0: bound by memory
  double bytes = 0;  ///< that one run must read and write
  /// Makes the tensors and returns what is run again and again.
  std::function<std::function<void(Context&)>(Context&)> prepare;
};

struct BenchResult {
  std::string name;
  double seconds = 0;  ///< of one run, the median of several measurements
  double tflops = 0;   ///< 0 where `flops` is 0
  double gigabytes_per_second = 0;
  bool device_clock = false;  ///< timestamps of the device, not the host's clock
};

/// Runs a case for about `seconds` to bring the device's clock up, then measures it.
BenchResult run_bench(Context& ctx, const BenchCase& c, double seconds = 0.5);

/// Every case for this device, the copy that others are compared with first: large ones where the
/// device is a real one, small ones elsewhere.
std::vector<BenchCase> bench_cases(const Context& ctx);
std::vector<BenchCase> matmul_bench_cases(const Context& ctx);
std::vector<BenchCase> memory_bench_cases(const Context& ctx);
std::vector<BenchCase> attention_bench_cases(const Context& ctx);

}  // namespace wgrad::ops
