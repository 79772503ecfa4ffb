#include "ops/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "wgrad/error.h"

namespace wgrad {
namespace {

constexpr int64_t kGranule = 256;

std::string_view prefix_of(std::string_view label) { return label.substr(0, label.find('/')); }

}  // namespace

Storage::~Storage() {
  if (context && !keep_alive) context->pool_->give_back(*this);
}

std::shared_ptr<Storage> Context::Pool::take(int64_t bytes, std::string_view label) {
  bytes = std::max<int64_t>((bytes + kGranule - 1) / kGranule * kGranule, kGranule);
  auto storage = std::make_shared<Storage>();
  // An idle block may be larger by a quarter: batches of slightly different sizes share blocks.
  auto found = idle.lower_bound(bytes);
  if (found != idle.end() && found->first <= bytes + bytes / 4) {
    storage->bytes = found->first;
    storage->host = found->second.host;
    storage->buffer = std::move(found->second.buffer);
    idle_bytes -= found->first;
    idle.erase(found);
  } else {
    check_limit(bytes, label);
    // On a device a quarter beside what is in use at most, so that a step whose sizes do not fit
    // each other's blocks does not make and drop them every time; the host makes them quickly.
    const int64_t most = std::max(most_live_bytes, live_bytes + bytes);
    const int64_t spare = owner.modelled() == DeviceKind::kCpu ? 0 : most / 4;
    const int64_t above = live_bytes + idle_bytes + bytes - most - spare;
    if (above > 0) release_idle(above);
    Block block = make(bytes, label);
    storage->bytes = bytes;
    storage->host = block.host;
    storage->buffer = std::move(block.buffer);
  }
  storage->context = &owner;
  storage->label = label;
  live_bytes += storage->bytes;
  most_live_bytes = std::max(most_live_bytes, live_bytes);
  peak_bytes = std::max(peak_bytes, live_bytes + idle_bytes);
  auto use = by_label.try_emplace(std::string(prefix_of(label))).first;
  use->second.live += storage->bytes;
  use->second.peak = std::max(use->second.peak, use->second.live);
  return storage;
}

void Context::Pool::give_back(Storage& storage) {
  live_bytes -= storage.bytes;
  by_label.find(prefix_of(storage.label))->second.live -= storage.bytes;
  idle_bytes += storage.bytes;
  idle.emplace(storage.bytes, Block{storage.host, std::move(storage.buffer)});
}

void Context::Pool::check_limit(int64_t bytes, std::string_view label) const {
  int64_t limit = owner.options_.memory_limit;
  if (limit > 0 && live_bytes + bytes > limit) {
    throw runtime_failure(
        fmt::format("memory for {}", label),
        fmt::format("{:.2f} GiB needed beside {:.2f} GiB in use", bytes / 1073741824.0,
                    live_bytes / 1073741824.0),
        fmt::format("the limit is {:.2f} GiB", limit / 1073741824.0),
        "lower --batch-size or --max-seq-len, or try --recompute block or --method qlora");
  }
}

Context::Pool::Block Context::Pool::make(int64_t bytes, std::string_view label) {
  Block block;
  if (owner.kind_ == DeviceKind::kGpu) {
    block.buffer.emplace(owner.device_->allocate(static_cast<uint64_t>(bytes), label));
  } else if (owner.kind_ == DeviceKind::kCpu) {
    block.host = static_cast<std::byte*>(std::aligned_alloc(kGranule, static_cast<size_t>(bytes)));
    if (!block.host) {
      throw runtime_failure(fmt::format("memory for {}", label),
                            fmt::format("the system refused {} bytes", bytes), {},
                            "lower --batch-size or --max-seq-len, or try --recompute block");
    }
  }
  return block;
}

void Context::Pool::destroy(Block& block) { std::free(block.host); }

void Context::Pool::release_idle(int64_t at_least) {
  int64_t released = 0;
  while (!idle.empty() && released < at_least) {
    auto largest = std::prev(idle.end());
    released += largest->first;
    idle_bytes -= largest->first;
    destroy(largest->second);
    idle.erase(largest);
  }
}

}  // namespace wgrad
