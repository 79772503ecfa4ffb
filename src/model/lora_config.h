#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace wgrad::model {

/// Low-rank adaptation (Hu et al. 2021) as PEFT's LoraConfig describes it.
struct LoraConfig {
  int64_t rank = 16;
  double alpha = 32.0;
  double dropout = 0.0;
  bool rslora = false;  ///< scale alpha / sqrt(rank) rather than alpha / rank
  /// "all-linear" (every linear layer of the blocks), or module names: a module is adapted where
  /// its name is one of them or ends in "." and one of them.
  std::vector<std::string> targets = {"all-linear"};
  bool dora = false;  ///< learn the length of each row of the weight beside its direction
  std::string target_pattern = {};  ///< in place of `targets`: a regular expression for whole names
  std::vector<std::string> exclude = {};  ///< names of modules to leave alone, matched as `targets`
  std::string exclude_pattern = {};       ///< in place of `exclude`
  std::vector<int64_t> layers = {};       ///< the only blocks that are adapted; empty: all
  std::vector<std::string> layer_lists =
      {};  ///< what the list of blocks may be called; empty: anything
  /// By regular expressions for a name or its end: a rank and an alpha of their own.
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  /// Modules trained whole and saved beside the adapter: those whose names end so.
  std::vector<std::string> modules_to_save = {};
};

/// alpha over the rank, or over its root.
float lora_scale(int64_t rank, double alpha, bool rslora);

/// A layer that an adapter stands beside.
struct AdaptedModule {
  enum class Kind : uint8_t { kEmbedding, kLinear, kOutput };

  std::string name;  ///< "model.layers.3.self_attn.q_proj"
  Kind kind = Kind::kLinear;
  int64_t layer = 0;                          ///< kLinear: of this block
  Projection projection = Projection::kQ;     ///< kLinear, as it is stored
  int64_t in_features = 0, out_features = 0;  ///< kEmbedding: the vocabulary, the hidden size
  std::vector<int64_t> part_rows = {};        ///< kLinear: of the products that are stored in it
  int64_t rank = 0;
  float scale = 0.0f;
};

/// What to do with a name that names nothing: it is a slip in what a user asks for, while PEFT's
/// files may carry names for other models.
enum class Unmatched : uint8_t { kRefuse, kIgnore };

/// The adapted modules in the order of the forward pass, by PEFT's rules. Settings out of range,
/// expressions that cannot be read and settings that contradict each other are input errors.
std::vector<AdaptedModule> adapted_modules(const ModelConfig& config, const LoraConfig& lora,
                                           Unmatched unmatched);
/// The tensors of modules_to_save, by their names in a checkpoint.
std::vector<Parameters::Spec> saved_tensors(const ModelConfig& config, const LoraConfig& lora,
                                            Unmatched unmatched);

/// The same adapter, in settings that name nothing of the other parts of a class of several models:
/// PEFT compares names with the modules of all of them.
LoraConfig for_whole_class(const ModelConfig& config, LoraConfig lora);

/// Reads adapter_config.json of a PEFT folder.
LoraConfig read_lora_config(const std::filesystem::path& folder);
/// The text of an adapter_config.json; the modules are those that the settings name.
std::string lora_config_text(const LoraConfig& lora, const std::vector<AdaptedModule>& modules,
                             const std::string& base_model_name);

}  // namespace wgrad::model
