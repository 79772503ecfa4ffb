#include "cpu/elementwise.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "cpu/instantiate.h"
#include "cpu/parallel.h"

namespace wgrad::cpu {
namespace {
constexpr int64_t kBlock = 8192;
}

template <class T>
void add(T* y, const T* x, int64_t n) {
  add_to(y, x, y, n);
}

template <class T>
void add_to(const T* a, const T* b, T* out, int64_t n) {
  parallel_blocks(n, kBlock, 1, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

template <class T>
void add_scaled(T* y, const T* x, T alpha, int64_t n) {
  parallel_blocks(n, kBlock, 1, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] += alpha * x[i];
  });
}

template <class T>
void scaled_copy(T* y, const T* x, T factor, int64_t n) {
  parallel_blocks(n, kBlock, 1, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = factor * x[i];
  });
}

template <class T>
void scale(T* y, T factor, int64_t n) {
  parallel_blocks(n, kBlock, 1, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] *= factor;
  });
}

template <class T>
void fill(T* y, T value, int64_t n) {
  parallel_blocks(n, kBlock, 1,
                  [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
}

float largest_magnitude(const float* x, int64_t n) {
  // Magnitudes compare as their bits do, and NaN is above them all: integers make this a vector
  // loop, which a maximum of floats is not.
  std::vector<uint32_t> largest(static_cast<size_t>(ceil_div(n, kBlock)));
  parallel_blocks(n, kBlock, 1, [&](int64_t begin, int64_t end) {
    uint32_t most = 0;
    for (int64_t i = begin; i < end; ++i) {
      most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    }
    largest[static_cast<size_t>(begin / kBlock)] = most;
  });
  const auto most = std::max_element(largest.begin(), largest.end());
  return most == largest.end() ? 0.0f : std::bit_cast<float>(*most);
}

#define WGRAD_INSTANTIATE(T)                                \
  template void add<T>(T*, const T*, int64_t);              \
  template void add_to<T>(const T*, const T*, T*, int64_t); \
  template void add_scaled<T>(T*, const T*, T, int64_t);    \
  template void scaled_copy<T>(T*, const T*, T, int64_t);   \
  template void scale<T>(T*, T, int64_t);                   \
  template void fill<T>(T*, T, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
