#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_view.h"

namespace wgrad::io {

/// The tensors of a checkpoint by their Hugging Face names (module_name_of()), wherever they are
/// stored. Owns the
/// mapped files; views live as long as it does. Const functions may be called from many threads.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// The folder or file, for error texts.
  virtual std::string where() const = 0;
  /// All names, sorted.
  virtual std::vector<std::string> names() const = 0;
  /// Null where there is no such tensor.
  virtual const TensorView* find(std::string_view name) const = 0;
  /// Copies the stored bytes of rows [begin, end) in the order of the shape.
  virtual void read_bytes(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                          std::span<std::byte> out) const = 0;
  /// Converts or dequantises rows [begin, end) in the order of the shape; `out` holds exactly
  /// (end - begin) * row_size() floats.
  virtual void read_f32(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                        std::span<float> out) const = 0;
  /// Lets the system drop the tensor's pages from memory.
  virtual void release(const TensorView& tensor) const = 0;

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor, or an input error that names it and, where there is one, the nearest name.
  const TensorView& get(std::string_view name) const;
  /// The tensor, or an input error where its shape is another one.
  const TensorView& get(std::string_view name, std::span<const std::int64_t> shape) const;
  /// The whole tensor.
  void read_f32(std::string_view name, std::span<float> out) const;
};

/// The name of a tensor by the module that it belongs to in transformers: files of models with
/// several parts begin their text model's with "language_model.model.", where the module is
/// "model.language_model". Other names are as they are.
std::string module_name_of(std::string_view stored_name);

/// The weights of a Hugging Face folder: model.safetensors, or the shards that
/// model.safetensors.index.json names.
std::unique_ptr<TensorSource> open_hf_folder(const std::filesystem::path& folder);

/// The tensors of one safetensors file (an adapter, a checkpoint's state).
std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path);

/// A Hugging Face folder, or a `.gguf` file (see gguf_names.h).
std::unique_ptr<TensorSource> open_checkpoint(const std::filesystem::path& path);

}  // namespace wgrad::io
