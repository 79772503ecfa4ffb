#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpu/device.h"

namespace wgrad {

class Context;

/// One block of memory from a context's pool (or wrapped host memory). Exactly one of `host` and
/// `buffer` is set, neither in a plan.
struct Storage {
  Context* context = nullptr;
  int64_t bytes = 0;  ///< as reserved, at least what was asked for
  std::string label;
  std::byte* host = nullptr;
  std::optional<gpu::Buffer> buffer;
  /// Set for wrapped memory: the owner; such storage never enters the pool.
  std::shared_ptr<const void> keep_alive;

  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();  ///< gives the memory back to the pool
};

}  // namespace wgrad
