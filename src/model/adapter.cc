#include "model/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cpu/dropout.h"
#include "model/read_rows.h"
#include "ops/dora.h"
#include "ops/elementwise.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

/// Streams of the modules outside the blocks; a projection's is its block's number times 8 and its
/// own.
constexpr uint64_t kEmbeddingStream = uint64_t{1} << 32, kOutputStream = kEmbeddingStream + 1;

/// Uniform in [-bound, bound): element e of a module's A is word e % 4 of Philox block e / 4 under
/// the stream of its layer and projection, so it depends on nothing else.
std::vector<float> uniform_matrix(int64_t count, double bound, uint64_t seed, uint64_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); i += 4) {
    const uint64_t block = i / 4;
    const auto words =
        cpu::philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (size_t j = 0; j < 4 && i + j < values.size(); ++j) {
      values[i + j] = static_cast<float>(bound * (0x1p-31 * words[j] - 1.0));
    }
  }
  return values;
}

/// Normal with variance 1, two at a time from the uniform values (Box and Muller 1958).
std::vector<float> normal_matrix(int64_t count, uint64_t seed, uint64_t stream) {
  std::vector<float> values = uniform_matrix(count + count % 2, 1.0, seed, stream);
  for (size_t i = 0; i < values.size(); i += 2) {
    const double uniform = std::max(0x1p-33, 0.5 * (1.0 - static_cast<double>(values[i])));
    const double radius = std::sqrt(-2.0 * std::log(uniform));
    const double angle = std::numbers::pi * static_cast<double>(values[i + 1]);
    values[i] = static_cast<float>(radius * std::cos(angle));
    values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  values.resize(static_cast<size_t>(count));
  return values;
}

/// A larger rank than a layer's smaller side adds nothing that this layer can learn.
void check_ranks(const std::vector<AdaptedModule>& modules) {
  for (const AdaptedModule& module : modules) {
    const int64_t most = std::min(module.in_features, module.out_features);
    if (module.rank <= most) continue;
    throw input_error("rank", fmt::format("{}", module.rank),
                      fmt::format("at most {}, the smaller side of {} ({} x {})", most, module.name,
                                  module.out_features, module.in_features),
                      "lower --rank, or leave the layer out of --targets");
  }
}

}  // namespace

const ops::Weight& weight_of(const Model& model, const AdaptedProduct& product) {
  if (product.kind == AdaptedModule::Kind::kOutput) return model.output;
  return model.layers[static_cast<size_t>(product.layer)][product.product].weight;
}

Adapter::Layout::Layout(const ModelConfig& config, const LoraConfig& lora, Unmatched unmatched)
    : modules(adapted_modules(config, lora, unmatched)), layers(config.layers) {
  for (const AdaptedModule& m : modules) {
    if (m.kind == AdaptedModule::Kind::kEmbedding) {
      tensors.push_back({m.name + ".lora_embedding_A", {m.in_features, m.rank}});
      tensors.push_back({m.name + ".lora_embedding_B", {m.out_features, m.rank}});
    } else {
      tensors.push_back({m.name + ".lora_A.weight", {m.rank, m.in_features}});
      tensors.push_back({m.name + ".lora_B.weight", {m.out_features, m.rank}});
      if (lora.dora) tensors.push_back({m.name + ".lora_magnitude_vector", {m.out_features}});
    }
  }
  for (Parameters::Spec& tensor : saved_tensors(config, lora, unmatched)) {
    tensors.push_back(std::move(tensor));
  }
}

Adapter::Adapter(Context& ctx, LoraConfig lora, Layout layout)
    : lora_(std::move(lora)),
      modules_(std::move(layout.modules)),
      parameters_(ctx, layout.tensors, "adapter") {
  of_blocks_.fill(std::vector<LoraPair>(static_cast<size_t>(layout.layers)));
  size_t next = 0;
  for (const AdaptedModule& module : modules_) {
    LoraPair whole;
    whole.a = &parameters_[next++];
    whole.b = &parameters_[next++];
    if (lora_.dora) whole.magnitude = &parameters_[next++];
    whole.scale = module.scale;
    of_modules_.push_back(whole);
    add_products(ctx, module, whole);
  }
}

void Adapter::add_products(const Context& ctx, const AdaptedModule& module, const LoraPair& whole) {
  const std::span<const Projection> parts = parts_of(module.projection);
  if (module.kind != AdaptedModule::Kind::kLinear || parts.size() == 1) {
    return add_product(module, module.projection, whole);
  }
  int64_t row = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t end = row + module.part_rows[i];
    LoraPair part = whole;
    part.b = rows(ctx, whole.b, row, end);
    part.magnitude = rows(ctx, whole.magnitude, row, end);
    add_product(module, parts[i], part);
    row = end;
  }
}

const Parameter* Adapter::rows(const Context& ctx, const Parameter* of, int64_t begin,
                               int64_t end) {
  if (of == nullptr) return nullptr;
  check_binding(ctx, begin * (of->value.size() / of->value.dim(0)), of->name);
  parts_.push_back({of->name, of->value.rows(begin, end), of->grad.rows(begin, end)});
  return &parts_.back();
}

void Adapter::add_product(const AdaptedModule& module, Projection product, LoraPair pair) {
  pair.index = products_.size();
  products_.push_back({module.kind, module.layer, product, pair});
  switch (module.kind) {
    case AdaptedModule::Kind::kEmbedding:
      embedding_ = pair;
      break;
    case AdaptedModule::Kind::kLinear:
      of_blocks_[static_cast<size_t>(product)][static_cast<size_t>(module.layer)] = pair;
      break;
    case AdaptedModule::Kind::kOutput:
      output_ = pair;
      break;
  }
}

void Adapter::start(Context& ctx, uint64_t seed) const {
  for (size_t i = 0; i < modules_.size(); ++i) {
    const AdaptedModule& module = modules_[i];
    const Tensor &a = of_modules_[i].a->value, &b = of_modules_[i].b->value;
    // PEFT's kaiming_uniform_(a = sqrt(5)): the bound is 1 / sqrt(inputs).
    const double bound = 1.0 / std::sqrt(static_cast<double>(module.in_features));
    switch (module.kind) {
      case AdaptedModule::Kind::kEmbedding:
        ctx.upload<float>(b, normal_matrix(b.size(), seed, kEmbeddingStream));
        break;
      case AdaptedModule::Kind::kLinear:
        ctx.upload<float>(
            a, uniform_matrix(a.size(), bound, seed,
                              static_cast<uint64_t>(module.layer) * 8 +
                                  static_cast<uint64_t>(parts_of(module.projection)[0])));
        break;
      case AdaptedModule::Kind::kOutput:
        ctx.upload<float>(a, uniform_matrix(a.size(), bound, seed, kOutputStream));
        break;
    }
  }
}

Adapter Adapter::create(Context& ctx, const ModelConfig& config, const LoraConfig& lora,
                        uint64_t seed) {
  if (lora.dora || !lora.modules_to_save.empty()) {
    throw runtime_failure("adapter", "DoRA or modules to save", "a model to begin from");
  }
  Layout layout(config, lora, Unmatched::kRefuse);
  check_ranks(layout.modules);
  Adapter adapter(ctx, for_whole_class(config, lora), std::move(layout));
  adapter.start(ctx, seed);
  return adapter;
}

Adapter Adapter::create(Context& ctx, const Model& model, const LoraConfig& lora, uint64_t seed) {
  Layout layout(model.config, lora, Unmatched::kRefuse);
  check_ranks(layout.modules);
  Adapter adapter(ctx, for_whole_class(model.config, lora), std::move(layout));
  adapter.start(ctx, seed);
  for (const AdaptedProduct& product : adapter.products_) {
    const LoraPair& pair = product.pair;
    if (pair.magnitude == nullptr) continue;
    const Tensor& magnitude = pair.magnitude->value;
    const auto scratch = [&] {
      return ctx.allocate(magnitude.shape(), DType::kF32, "scratch/dora");
    };
    const ops::DoraFactors factors = {scratch(), scratch()};
    ops::dora_factors(ctx, weight_of(model, product), pair.a->value, pair.b->value, pair.scale,
                      magnitude, factors);
    ops::copy(ctx, factors.norm, magnitude);
  }
  for (const Parameters::Spec& tensor : saved_tensors(model.config, lora, Unmatched::kRefuse)) {
    // A tied output layer begins as the table.
    const bool tied = tensor.name == "lm_head.weight" && model.config.tied_embeddings;
    const std::string name = tied ? model.config.table_name() + ".weight" : tensor.name;
    upload_tensor(ctx, *model.source, model.source->get(name, tensor.shape),
                  adapter.parameters_.find(tensor.name)->value);
  }
  return adapter;
}

LoraPair Adapter::pair(int64_t layer, Projection product) const {
  return of_blocks_[static_cast<size_t>(product)][static_cast<size_t>(layer)];
}

}  // namespace wgrad::model
