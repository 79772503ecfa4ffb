#include "gpu/staging.h"

#include <algorithm>

#include "wgrad/error.h"

namespace wgrad::gpu {

Staging::Piece Staging::take(Core& core, uint64_t bytes) {
  if (current_ == nullptr) current_ = &next_block(core);
  Piece piece;
  piece.buffer = &current_->buffer.handle();
  piece.offset = current_->used;
  piece.data = current_->data + current_->used;
  piece.size = std::min(bytes, kBlockBytes - current_->used);
  current_->used += piece.size;
  piece.fills_block = current_->used == kBlockBytes;
  return piece;
}

Staging::Block& Staging::next_block(Core& core) {
  auto free = [this]() -> Block* {
    for (const auto& block : blocks_) {
      if (block->data != nullptr) return block.get();
    }
    return nullptr;
  };
  if (Block* block = free()) return *block;
  if (blocks_.size() < kMaxBlocks) {
    auto block = std::make_unique<Block>();
    block->buffer = InternalBuffer(core, "upload staging", kBlockBytes,
                                   wgpu::BufferUsage::MapWrite | wgpu::BufferUsage::CopySrc, true);
    block->data = static_cast<std::byte*>(block->buffer.handle().GetMappedRange());
    blocks_.push_back(std::move(block));
    return *blocks_.back();
  }
  await_oldest(core);
  if (Block* block = free()) return *block;
  throw runtime_failure("upload", "no staging memory came back from the device");
}

void Staging::await_oldest(Core& core) {
  if (in_flight_.empty()) return;
  Block* block = in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  core.wait(block->returned);
}

void Staging::before_submit() {
  if (current_ == nullptr) return;
  current_->buffer.handle().Unmap();
  current_->data = nullptr;
}

void Staging::after_submit(Core& core) {
  if (current_ == nullptr) return;
  Block* block = current_;
  current_ = nullptr;
  block->returned = block->buffer.handle().MapAsync(
      wgpu::MapMode::Write, 0, kBlockBytes, wgpu::CallbackMode::WaitAnyOnly,
      [block](wgpu::MapAsyncStatus status, wgpu::StringView) {
        if (status != wgpu::MapAsyncStatus::Success) return;
        block->data = static_cast<std::byte*>(block->buffer.handle().GetMappedRange());
        block->used = 0;
      });
  in_flight_.push_back(block);
  // Blocks that are already back are taken up without waiting.
  while (!in_flight_.empty() &&
         core.instance.WaitAny(in_flight_.front()->returned, 0) == wgpu::WaitStatus::Success) {
    in_flight_.erase(in_flight_.begin());
  }
}

}  // namespace wgrad::gpu
