#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_writer.h"
#include "model/config.h"
#include "text/gguf_tokenizer.h"

namespace wgrad::model {

/// general.quantization_version of ggml's block layouts.
inline constexpr uint32_t kQuantizationVersion = 2;

/// What llama.cpp's graph of an architecture makes of sliding windows.
enum class GgufWindows : uint8_t {
  kNone,      ///< it has none
  kIgnored,   ///< one for all layers, which it leaves out
  kPeriodic,  ///< in every layer but each `period`-th
};

/// How an architecture of llama.cpp differs from the others, and what its graph has. The one table
/// of them all is in gguf_metadata.cc.
struct GgufArchitecture {
  std::string_view model_type;      ///< config.json's
  std::string_view name;            ///< general.architecture
  bool neighbouring_pairs = false;  ///< q and k are rotated so, and their rows reordered for it
  bool qkv_bias = true;             ///< whether it has a form for these
  bool other_bias = false;
  bool own_head_size = true;  ///< one that is not the hidden size over the heads
  bool own_output = true;     ///< an output layer apart from the embedding
  bool tied_output = true;    ///< one that is the embedding
  bool yarn = true;
  bool divided_pairs = false;  ///< rope_freqs, for llama3 scaling
  GgufWindows windows = GgufWindows::kNone;
  int64_t period = 0;             ///< where no key says another
  bool period_key = false;        ///< whether one can
  int64_t no_rope_period = 0;     ///< each of these layers does not rotate
  int64_t layers_of_largest = 0;  ///< scores are scaled by 1 / sqrt(hidden / heads) there

  /// The rows of a head where this module's rows (of W or of LoRA's B) are reordered, else 0.
  int64_t reordered_head(const ModelConfig& config, std::string_view module) const;
};

/// The architecture of a config, or an input error where GGUF or llama.cpp's graph has no form for
/// it or for one of its settings.
const GgufArchitecture& gguf_architecture(const ModelConfig& config, std::string_view where);

/// Writes the keys of the architecture; adds a sentence to `notes` for what llama.cpp computes
/// otherwise.
void write_architecture(const ModelConfig& config, const GgufArchitecture& architecture,
                        io::GgufWriter& writer, std::vector<std::string>& notes);

/// What the rotary frequencies are divided by, a value a pair.
struct RopeDivisors {
  std::string_view name;  ///< the tensor's
  std::vector<float> values;
};
/// None where by 1 or by one factor, two where long rows have others than short ones.
std::vector<RopeDivisors> rope_divisors(const ModelConfig& config);

void write_tokenizer(const text::GgufTokenizerParts& parts, io::GgufWriter& writer);

}  // namespace wgrad::model
