#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "ops/verify.h"

namespace wgrad::ops {

/// Runs cases on several contexts of one device at once: the time goes to references in double and
/// to compiling kernels, which are independent.
struct VerifyRun {
  /// A context of the device. Never called by two threads at once.
  std::function<std::unique_ptr<Context>()> open;
  int workers = 1;
  /// A case has ended, in any order; one call at a time.
  std::function<void(size_t ended)> progress;
  /// A case's result, in the order of the cases; one call at a time.
  std::function<void(const VerifyResult& result)> report;
};

/// Workers that this machine and the device's memory (0: not known) have room for.
int verify_workers(uint64_t device_memory);

/// Throws what `open` or a callback throws, after the other workers have stopped.
void run_cases(std::span<const VerifyCase> cases, const VerifyRun& run);

}  // namespace wgrad::ops
