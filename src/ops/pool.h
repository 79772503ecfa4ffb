#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "ops/context.h"
#include "ops/storage.h"

namespace wgrad {

/// Memory of one context. Blocks come back when their last tensor goes and are handed out again to
/// requests of about their size. On a device the pool holds a quarter more than was ever in use at
/// most, on the CPU no more than that: beyond it, it gives idle blocks back to the system first.
/// The rule depends only on the sequence of requests, so a plan that runs the same sequence finds
/// the same peak.
struct Context::Pool {
  explicit Pool(Context& owner) : owner(owner) {}
  ~Pool() { trim(); }

  std::shared_ptr<Storage> take(int64_t bytes, std::string_view label);
  void give_back(Storage& storage);
  void trim() { release_idle(idle_bytes); }

  int64_t live_bytes = 0;
  int64_t most_live_bytes = 0;
  int64_t idle_bytes = 0;
  int64_t peak_bytes = 0;
  struct LabelUse {
    int64_t live = 0, peak = 0;
  };
  std::map<std::string, LabelUse, std::less<>> by_label;

 private:
  struct Block {
    std::byte* host = nullptr;
    std::optional<gpu::Buffer> buffer;
  };
  Block make(int64_t bytes, std::string_view label);
  void destroy(Block& block);
  void release_idle(int64_t at_least);
  void check_limit(int64_t bytes, std::string_view label) const;

  Context& owner;
  std::multimap<int64_t, Block> idle;  ///< by size
};

}  // namespace wgrad
