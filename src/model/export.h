#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/gguf_types.h"

namespace wgrad::model {

struct ExportSummary {
  uint64_t bytes = 0;
  /// What the file holds or does otherwise than one may think, a sentence each.
  std::vector<std::string> notes;
};

/// Writes a model, with an adapter merged into it unless `adapter` is empty, as one GGUF file that
/// llama.cpp reads: W + scale B A computed in f32 and rounded or quantised once. From a Hugging
/// Face folder, metadata, tokenizer and template are made from its files; a .gguf base keeps its
/// own, and with kKeep the bytes of every tensor that the adapter does not change. Tensor by
/// tensor; the file must not exist and appears when it is complete. What has no GGUF form is an
/// input error.
ExportSummary export_gguf(const std::filesystem::path& base, const std::filesystem::path& adapter,
                          GgufType type, const std::filesystem::path& out);

/// Writes the adapter alone in llama.cpp's form for the model `base`, of which only the config is
/// read. The types are kKeep (f32), f32, f16, bf16 and q8_0.
ExportSummary export_adapter_gguf(const std::filesystem::path& base,
                                  const std::filesystem::path& adapter, GgufType type,
                                  const std::filesystem::path& out);

/// An input error where `out` is there already.
void refuse_existing(const std::filesystem::path& out);

}  // namespace wgrad::model
