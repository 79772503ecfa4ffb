#include "cpu/largest.h"

#include <cmath>

namespace wgrad::cpu {

Largest largest(const float* x, int64_t n) {
  Largest result{-1, true};
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) {
      result.finite = false;
    } else if (result.index < 0 || x[i] > x[result.index]) {
      result.index = i;
    }
  }
  return result;
}

}  // namespace wgrad::cpu
