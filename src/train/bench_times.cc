#include "train/bench_times.h"

#include <algorithm>
#include <map>

namespace wgrad::train {

double seconds_since(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

KernelTimes take_kernel_times(Context& ctx) {
  KernelTimes times;
  std::map<std::string, double> by_kernel;
  for (const gpu::DispatchTime& time : ctx.device().take_times()) {
    times.total += time.seconds;
    by_kernel[time.kernel] += time.seconds;
  }
  times.by_kernel.assign(by_kernel.begin(), by_kernel.end());
  std::sort(times.by_kernel.begin(), times.by_kernel.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.second > b.second; });
  return times;
}

double median(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace wgrad::train
