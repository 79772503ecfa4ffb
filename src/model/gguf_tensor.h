#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/checkpoint_source.h"
#include "io/safetensors.h"
#include "model/checkpoint_writer.h"

namespace wgrad::model {

/// A tensor on its way into a GGUF file.
struct GgufTensor {
  const io::TensorSource* source;
  const io::TensorView* view;
  CheckpointEdits* edits;  ///< null where the values stay
  io::FileType type;       ///< in the file
  int64_t head;            ///< rows of a head where they are reordered; else 0
  float offset;            ///< that the file's values are larger by
};

/// The entry that reads, edits, reorders and converts it a few rows at a time.
io::TensorToWrite gguf_entry(std::string name, const GgufTensor& tensor);

/// Rows (of a vector: elements) [0, count) of `width` values in the order of a file that rotates
/// neighbouring pairs.
std::vector<float> reordered_rows(std::span<const float> values, int64_t width, int64_t head);

/// Converts whole rows on all threads and passes their bytes on.
void sink_rows(io::FileType type, std::span<const float> values, int64_t width,
               const std::string& where, const io::ByteSink& sink);

}  // namespace wgrad::model
