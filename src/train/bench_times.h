#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "ops/context.h"

namespace wgrad::train {

using BenchClock = std::chrono::steady_clock;
double seconds_since(BenchClock::time_point start);

/// A kernel and its seconds.
using KernelTime = std::pair<std::string, double>;

/// Takes what the device has timed: the sum of all, and by kernel, the longest first.
struct KernelTimes {
  double total = 0;
  std::vector<KernelTime> by_kernel;
};
KernelTimes take_kernel_times(Context& ctx);

/// The middle one; reorders them.
double median(std::vector<double>& seconds);

}  // namespace wgrad::train
