#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "io/checkpoint_source.h"
#include "model/config.h"

namespace wgrad::model {

/// What changes between a checkpoint and its copy.
class CheckpointEdits {
 public:
  virtual ~CheckpointEdits() = default;
  /// Whether the tensor's values change; otherwise its bytes are copied.
  virtual bool changes(const std::string& name) const = 0;
  /// Whether an output layer that was the embedding table becomes a tensor of its own.
  virtual bool unties() const { return false; }
  /// Turns rows [begin, end) of the stored tensor, in f32, into the new ones. `rows` holds the old
  /// values.
  virtual void apply(const io::TensorView& tensor, int64_t begin, int64_t end,
                     std::span<float> rows) = 0;
};

/// Writes a checkpoint like `base` (a Hugging Face folder or a .gguf file, opened as `source`) into
/// the existing folder `out`: the same tensors in the same types and shards, rounded once where
/// they change, with config, tokenizer and template. Quantised tensors become f32.
void write_checkpoint(const ModelConfig& config, const std::filesystem::path& base,
                      const io::TensorSource& source, CheckpointEdits& edits,
                      const std::filesystem::path& out);

/// Copies the files beside the weights of a Hugging Face folder, or writes those that a .gguf file
/// stands for. `weight_type` is what the new config says of the weights ("float32").
void write_model_files(const std::filesystem::path& base, const std::string& weight_type,
                       const std::filesystem::path& out);

}  // namespace wgrad::model
