#include "ops/verify_run.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cpu/parallel.h"

namespace wgrad::ops {
namespace {

/// Consecutive cases that a worker takes at a time: they mostly share kernels.
constexpr size_t kCasesAtATime = 4;
constexpr int kMostWorkers = 8;
/// The largest cases take this much of a device.
constexpr uint64_t kWorkerMemory = uint64_t{1} << 30;

int machine_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// The cases still to run and the results. Its functions may be called by any worker.
class Queue {
 public:
  Queue(std::span<const VerifyCase> cases, const VerifyRun& run)
      : cases_(cases), run_(run), end_(cases.size()), results_(cases.size()) {}

  /// Runs cases until none are left. The last families are the longest, so every second worker
  /// begins there.
  void work(bool from_the_end) {
    try {
      const std::unique_ptr<Context> ctx = open();
      for (auto [begin, end] = take(from_the_end); begin < end;
           std::tie(begin, end) = take(from_the_end)) {
        for (size_t i = begin; i < end && !failed_; ++i) keep(i, run_case(cases_[i], *ctx));
        ctx->trim();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::unique_ptr<Context> open() {
    const std::lock_guard lock(mutex_);
    return run_.open();
  }

  std::pair<size_t, size_t> take(bool from_the_end) {
    const std::lock_guard lock(mutex_);
    if (failed_) return {0, 0};
    const size_t count = std::min(kCasesAtATime, end_ - begin_);
    if (from_the_end) {
      end_ -= count;
      return {end_, end_ + count};
    }
    begin_ += count;
    return {begin_ - count, begin_};
  }

  void keep(size_t index, VerifyResult result) {
    const std::lock_guard lock(mutex_);
    results_[index] = std::move(result);
    ++ended_;
    if (run_.progress) run_.progress(ended_);
    for (; reported_ < results_.size() && results_[reported_]; ++reported_) {
      if (run_.report) run_.report(*results_[reported_]);
    }
  }

  std::span<const VerifyCase> cases_;
  const VerifyRun& run_;
  std::mutex mutex_;
  size_t begin_ = 0, end_;  ///< not yet taken
  size_t ended_ = 0, reported_ = 0;
  std::vector<std::optional<VerifyResult>> results_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
};

}  // namespace

int verify_workers(uint64_t device_memory) {
  int workers = std::min(machine_threads(), kMostWorkers);
  if (device_memory > 0) {
    workers = static_cast<int>(
        std::min<uint64_t>(static_cast<uint64_t>(workers), device_memory / kWorkerMemory));
  }
  return std::max(workers, 1);
}

void run_cases(std::span<const VerifyCase> cases, const VerifyRun& run) {
  Queue queue(cases, run);
  const int workers = std::max(run.workers, 1);
  std::vector<std::jthread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&queue, i, workers] {
      cpu::set_threads(std::max(1, machine_threads() / workers));
      queue.work(i % 2 == 1);
    });
  }
  threads.clear();  // joins
  queue.rethrow();
}

}  // namespace wgrad::ops
