#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/core.h"

namespace wgrad::gpu {

/// Host-visible memory on the way to the device, in a bounded number of blocks. Owns the blocks.
class Staging {
 public:
  static constexpr uint64_t kBlockBytes = uint64_t{4} << 20;
  static constexpr size_t kMaxBlocks = 8;

  /// A range of a block, mapped for writing until the next submit.
  struct Piece {
    const wgpu::Buffer* buffer = nullptr;
    uint64_t offset = 0;
    std::byte* data = nullptr;
    uint64_t size = 0;
    bool fills_block = false;  ///< the caller should submit: the next piece needs another block
  };

  /// At most `bytes` (a multiple of 4), at least 4. Waits for the device when all blocks are on
  /// their way.
  Piece take(Core& core, uint64_t bytes);
  void before_submit();
  void after_submit(Core& core);

 private:
  struct Block {
    InternalBuffer buffer;
    std::byte* data = nullptr;  ///< null while the device has it
    uint64_t used = 0;
    wgpu::Future returned;
  };

  Block& next_block(Core& core);
  void await_oldest(Core& core);

  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> in_flight_;  ///< oldest first
  Block* current_ = nullptr;       ///< written to since the last submit
};

}  // namespace wgrad::gpu
