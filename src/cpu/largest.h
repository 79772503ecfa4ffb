#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// Where the largest of the finite ones of n values first stands (-1: there is none), and whether
/// all are finite.
struct Largest {
  int64_t index = 0;
  bool finite = true;
};
Largest largest(const float* x, int64_t n);

}  // namespace wgrad::cpu
