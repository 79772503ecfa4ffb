#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tensor_view.h"

namespace wgrad::model {

/// How the matrices of an exported model are stored.
enum class GgufType : uint8_t {
  kKeep,  ///< as the base stores them
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,  ///< the output layer in Q6_K
  kQ4_K,  ///< the mix Q4_K_M: the output layer and half of attn_v and ffn_down in Q6_K
};

/// Chooses each tensor's type as llama.cpp's converter and llama-quantize do, and remembers where a
/// row had no whole number of blocks: Q4_K then becomes Q5_0, Q5_K Q5_1, Q6_K Q8_0, and what does
/// not fit these either F16.
class GgufTypes {
 public:
  /// `tied`: there is no output layer of its own.
  GgufTypes(GgufType type, int64_t layers, bool tied) : type_(type), layers_(layers), tied_(tied) {}

  /// Of a tensor by its GGUF name, stored in the base as `tensor` says.
  io::FileType choose(std::string_view name, const io::TensorView& tensor);
  /// general.file_type of ggml; -1 for kKeep.
  int file_type() const;
  /// A sentence for each kind of tensor that was given another type than its due.
  std::vector<std::string> notes() const;

 private:
  io::FileType mixed(std::string_view name, int64_t row) const;
  io::FileType fitting(io::FileType type, int64_t row);

  GgufType type_;
  int64_t layers_;
  bool tied_;
  std::map<std::pair<io::FileType, io::FileType>, int> replaced_;
};

}  // namespace wgrad::model
