#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_writer.h"
#include "model/config.h"
#include "text/gguf_tokenizer.h"

namespace wgrad::model {

/// How an architecture of llama.cpp differs from the others. The one table of them all is in
/// gguf_metadata.cc.
struct GgufArchitecture {
  std::string_view model_type;  ///< config.json's
  std::string_view name;        ///< general.architecture
  bool neighbouring_pairs;      ///< q and k are rotated so, and their rows reordered for it
  bool qkv_bias;                ///< whether it has a form for these
  bool other_bias;
  bool window;  ///< one for all layers
  QkNorm qk_norm;
};

/// The architecture of a config, or an input error where GGUF or llama.cpp's graph has no form for
/// it or for one of its settings.
const GgufArchitecture& gguf_architecture(const ModelConfig& config, std::string_view where);

/// Writes the keys of the architecture; adds a sentence to `notes` for what llama.cpp computes
/// otherwise.
void write_architecture(const ModelConfig& config, const GgufArchitecture& architecture,
                        io::GgufWriter& writer, std::vector<std::string>& notes);

/// What the rotary frequencies are divided by, a value a pair; empty where by 1.
std::vector<float> rope_divisors(const ModelConfig& config);

void write_tokenizer(const text::GgufTokenizerParts& parts, io::GgufWriter& writer);

}  // namespace wgrad::model
