#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint_source.h"
#include "model/config.h"
#include "model/parameters.h"
#include "ops/context.h"

namespace wgrad::model {

/// Low-rank adaptation (Hu et al. 2021) as PEFT defines it.
struct LoraConfig {
  int64_t rank = 16;
  double alpha = 32.0;
  double dropout = 0.0;
  bool rslora = false;  ///< scale alpha / sqrt(rank) rather than alpha / rank
  /// "all-linear", or module names: a module is adapted where its name is one of them or ends in
  /// "." and one of them.
  std::vector<std::string> targets = {"all-linear"};

  float scale() const;
};

/// The two matrices beside one linear layer: A [rank, in], B [out, rank].
struct LoraPair {
  const Parameter* a = nullptr;
  const Parameter* b = nullptr;
  explicit operator bool() const { return a != nullptr; }
};

/// A LoRA adapter: its settings and matrices, all of them in flat buffers. Owns them. Move-only.
class Adapter {
 public:
  /// A is uniform in +-1/sqrt(in) (a function of the seed, the module and the element alone), B is
  /// zero. A rank of 0 or larger than a layer and a target that matches no layer are input errors.
  static Adapter create(Context& ctx, const ModelConfig& config, const LoraConfig& lora,
                        uint64_t seed);
  /// Reads a PEFT folder. Missing, unexpected and misshapen tensors and settings that are not
  /// built here are input errors. The rank is the file's, whatever the size of the layers.
  static Adapter load(Context& ctx, const ModelConfig& config, const std::filesystem::path& folder);

  Adapter(Adapter&&) = default;
  Adapter& operator=(Adapter&&) = default;

  /// Writes adapter_model.safetensors and adapter_config.json into an existing folder.
  void save(Context& ctx, const std::filesystem::path& folder,
            const std::string& base_model_name) const;

  const LoraConfig& lora() const { return lora_; }
  float scale() const { return lora_.scale(); }
  const Parameters& parameters() const { return parameters_; }
  /// Empty where the projection is not adapted. A product that is stored with others has their A
  /// and its rows of their B.
  LoraPair pair(int64_t layer, Projection projection) const;
  bool adapts(Projection projection) const;

 private:
  /// All matrices zero.
  Adapter(Context& ctx, const ModelConfig& config, LoraConfig lora);
  static std::vector<Parameters::Spec> matrices(const ModelConfig& config, const LoraConfig& lora);

  struct Part {
    Parameter a, b;
  };
  /// Makes the pairs of the products in a stored layer.
  void split(const Context& ctx, const ModelConfig& config, Projection stored);

  LoraConfig lora_;
  int64_t layers_ = 0;
  std::vector<Projection> adapted_;  ///< layers of a block, as stored
  Parameters parameters_;
  /// Of each layer: its pair is number block * adapted_.size() + slot; -1 where it is not adapted.
  std::array<int, kProjectionCount> slot_{};
  std::array<std::vector<Part>, kProjectionCount> parts_;  ///< of each block
};

/// Those of `layers` that the targets name; an input error for a target that matches none.
std::vector<Projection> match_targets(const std::vector<std::string>& targets,
                                      std::span<const Projection> layers);

/// Reads adapter_config.json of a PEFT folder.
LoraConfig read_lora_config(const std::filesystem::path& folder);

}  // namespace wgrad::model
