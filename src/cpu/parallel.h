#pragma once

#include <algorithm>
#include <cstdint>

/// Threads and vectors for the CPU operations.
namespace wgrad::cpu {

/// Loops with less work than this (in scalar operations) stay on the calling thread: waking the
/// others would cost more.
inline constexpr int64_t kParallelWork = 1 << 15;

/// Sums over rows are split over the threads by columns, this many at a time.
inline constexpr int64_t kColumnBlock = 64;

/// Threads that loops started by the calling thread use from here on; all of the machine's at
/// first.
void set_threads(int count);

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Calls body(i) for i in [0, count), on all threads if the work (count * work_per_item) is worth
/// it. Items must be independent: then the result has the same bits for any number of threads.
template <class Body>
void parallel_for(int64_t count, int64_t work_per_item, const Body& body) {
  if (count > 1 && count * work_per_item >= kParallelWork) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; ++i) body(i);
  } else {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
}

/// As parallel_for, for items of unequal work: a thread takes the next item when it is free.
template <class Body>
void parallel_for_dynamic(int64_t count, int64_t work_per_item, const Body& body) {
  if (count > 1 && count * work_per_item >= kParallelWork) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) body(i);
  } else {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
}

/// The same, with working memory that make_scratch() gives each thread once: body(i, scratch).
template <class MakeScratch, class Body>
void parallel_for_dynamic(int64_t count, int64_t work_per_item, const MakeScratch& make_scratch,
                          const Body& body) {
#pragma omp parallel if (count > 1 && count * work_per_item >= kParallelWork)
  {
    auto scratch = make_scratch();
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) body(i, scratch);
  }
}

/// Calls body(begin, end) for consecutive blocks of [0, n): blocks of fixed size, whatever the
/// number of threads.
template <class Body>
void parallel_blocks(int64_t n, int64_t block, int64_t work_per_element, const Body& body) {
  parallel_for(ceil_div(n, block), block * work_per_element,
               [&](int64_t b) { body(b * block, std::min(n, (b + 1) * block)); });
}

}  // namespace wgrad::cpu
