#pragma once

#include <array>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint_source.h"
#include "model/config.h"
#include "model/lora_config.h"
#include "model/model.h"
#include "model/parameters.h"
#include "ops/context.h"

namespace wgrad::model {

/// What stands beside one layer: A [rank, in], B [out, rank] and with DoRA the length of each row,
/// [out]. An embedding's A is a table [vocabulary, rank].
struct LoraPair {
  const Parameter* a = nullptr;
  const Parameter* b = nullptr;
  const Parameter* magnitude = nullptr;  ///< null without DoRA
  float scale = 0.0f;
  size_t index = 0;  ///< its number among the adapter's products
  explicit operator bool() const { return a != nullptr; }
};

/// What stands beside one matrix product. A product that is stored with others has their A and its
/// rows of the rest.
struct AdaptedProduct {
  AdaptedModule::Kind kind = AdaptedModule::Kind::kLinear;
  int64_t layer = 0;                    ///< kLinear
  Projection product = Projection::kQ;  ///< kLinear
  LoraPair pair;
};

/// The weight of a linear or output product.
const ops::Weight& weight_of(const Model& model, const AdaptedProduct& product);

/// A LoRA adapter: its settings, its matrices and the modules trained whole beside them, all of
/// them in flat buffers. Owns them. Move-only.
class Adapter {
 public:
  /// A is uniform in +-1/sqrt(in) (a function of the seed, the module and the element alone), B is
  /// zero; of an embedding A is zero and B normal. Settings out of range, a rank larger than a
  /// layer and a name that names nothing are input errors. Neither DoRA nor modules to save, which
  /// begin with the model's values.
  static Adapter create(Context& ctx, const ModelConfig& config, const LoraConfig& lora,
                        uint64_t seed);
  /// The same of any settings: lengths and saved modules begin as the model's own.
  static Adapter create(Context& ctx, const Model& model, const LoraConfig& lora, uint64_t seed);
  /// Reads a PEFT folder. Missing, unexpected and misshapen tensors and settings that are not
  /// built here are input errors. The rank is the file's, whatever the size of the layers. Weights
  /// of the model that PEFT stored beside the adapter must be those of `base`, where it is given.
  static Adapter load(Context& ctx, const ModelConfig& config, const std::filesystem::path& folder,
                      const io::TensorSource* base = nullptr);

  Adapter(Adapter&&) = default;
  Adapter& operator=(Adapter&&) = default;

  /// Writes adapter_model.safetensors and adapter_config.json into an existing folder.
  void save(Context& ctx, const std::filesystem::path& folder,
            const std::string& base_model_name) const;

  const LoraConfig& lora() const { return lora_; }
  const Parameters& parameters() const { return parameters_; }
  const std::vector<AdaptedModule>& modules() const { return modules_; }
  /// Of modules()[i], whole.
  const LoraPair& module_pair(size_t i) const { return of_modules_[i]; }
  /// By their pairs' index.
  const std::vector<AdaptedProduct>& products() const { return products_; }
  /// Empty where the product is not adapted.
  LoraPair pair(int64_t layer, Projection product) const;
  LoraPair embedding() const { return embedding_; }
  LoraPair output() const { return output_; }
  /// Whether modules are trained whole. Then the model computes with its replaced() weights.
  bool saves_modules() const { return !lora_.modules_to_save.empty(); }

 private:
  /// Which modules and tensors an adapter has.
  struct Layout {
    Layout(const ModelConfig& config, const LoraConfig& lora, Unmatched unmatched);
    std::vector<AdaptedModule> modules;
    std::vector<Parameters::Spec> tensors;  ///< each module's, then those that are saved
    int64_t layers = 0;
  };
  /// All tensors zero.
  Adapter(Context& ctx, LoraConfig lora, Layout layout);
  void add_products(const Context& ctx, const AdaptedModule& module, const LoraPair& whole);
  void add_product(const AdaptedModule& module, Projection product, LoraPair pair);
  /// Rows [begin, end) of a parameter as one of its own; null for null.
  const Parameter* rows(const Context& ctx, const Parameter* of, int64_t begin, int64_t end);
  /// Draws the matrices.
  void start(Context& ctx, uint64_t seed) const;

  LoraConfig lora_;
  std::vector<AdaptedModule> modules_;
  Parameters parameters_;
  std::deque<Parameter> parts_;
  std::vector<LoraPair> of_modules_;
  std::vector<AdaptedProduct> products_;
  /// Of each product in each block.
  std::array<std::vector<LoraPair>, kProducts.size()> of_blocks_;
  LoraPair embedding_, output_;
};

}  // namespace wgrad::model
