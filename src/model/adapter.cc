#include "model/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cpu/dropout.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

bool matches(std::string_view module, std::string_view target) {
  if (!module.ends_with(target)) return false;
  const size_t rest = module.size() - target.size();
  return rest == 0 || module[rest - 1] == '.';
}

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

void check_settings(const LoraConfig& lora) {
  if (lora.rank < 1) {
    throw input_error("rank", fmt::format("{}", lora.rank), "at least 1");
  }
  if (!std::isfinite(lora.alpha) || lora.alpha <= 0) {
    throw input_error("alpha", fmt::format("{}", lora.alpha), "a number greater than 0");
  }
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    throw input_error("dropout", fmt::format("{}", lora.dropout), "a number in [0, 1)");
  }
}

/// A larger rank than a layer's smaller side adds nothing that this layer can learn.
void check_rank(const ModelConfig& config, const LoraConfig& lora) {
  for (const Projection p : match_targets(lora.targets, config.projections())) {
    const int64_t most = std::min(config.in_features(p), config.out_features(p));
    if (lora.rank <= most) continue;
    throw input_error(
        "rank", fmt::format("{}", lora.rank),
        fmt::format("at most {}, the smaller side of {} ({} x {})", most, projection_name(p),
                    config.out_features(p), config.in_features(p)),
        "lower --rank, or leave the layer out of --targets");
  }
}

}  // namespace

float LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (rslora ? std::sqrt(r) : r));
}

std::vector<Projection> match_targets(const std::vector<std::string>& targets,
                                      std::span<const Projection> layers) {
  if (targets.empty()) throw input_error("targets", "no names", "all-linear or module names");
  const auto names = [](const std::string& target, Projection p) {
    return target == "all-linear" || matches(projection_name(p), target);
  };
  for (const std::string& target : targets) {
    const auto named = [&](Projection p) { return names(target, p); };
    if (std::any_of(layers.begin(), layers.end(), named)) continue;
    std::vector<std::string_view> known;
    for (const Projection p : layers) {
      known.push_back(projection_name(p).substr(projection_name(p).find('.') + 1));
    }
    throw input_error("targets", fmt::format("\"{}\" matches no layer", target),
                      fmt::format("all-linear, or names out of {}", fmt::join(known, ", ")));
  }
  std::vector<Projection> found;
  std::copy_if(layers.begin(), layers.end(), std::back_inserter(found), [&](Projection p) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const std::string& target) { return names(target, p); });
  });
  return found;
}

std::vector<Parameters::Spec> Adapter::matrices(const ModelConfig& config, const LoraConfig& lora) {
  check_settings(lora);
  const std::vector<Projection> adapted = match_targets(lora.targets, config.projections());
  std::vector<Parameters::Spec> specs;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const Projection p : adapted) {
      const std::string module = module_name(layer, p);
      specs.push_back({module + ".lora_A.weight", {lora.rank, config.in_features(p)}});
      specs.push_back({module + ".lora_B.weight", {config.out_features(p), lora.rank}});
    }
  }
  return specs;
}

Adapter::Adapter(Context& ctx, const ModelConfig& config, LoraConfig lora)
    : lora_(std::move(lora)),
      layers_(config.layers),
      adapted_(match_targets(lora_.targets, config.projections())),
      parameters_(ctx, matrices(config, lora_), "adapter") {
  slot_.fill(-1);
  int slot = 0;
  for (const Projection p : adapted_) slot_[static_cast<size_t>(p)] = slot++;
  for (const Projection stored : adapted_) {
    if (parts_of(stored).size() > 1) split(ctx, config, stored);
  }
}

void Adapter::split(const Context& ctx, const ModelConfig& config, Projection stored) {
  for (int64_t layer = 0; layer < layers_; ++layer) {
    const LoraPair whole = pair(layer, stored);
    int64_t row = 0;
    for (const Projection p : parts_of(stored)) {
      const int64_t end = row + config.out_features(p);
      check_binding(ctx, row * lora_.rank, projection_name(p));
      std::vector<Part>& parts = parts_[static_cast<size_t>(p)];
      parts.push_back(
          {*whole.a, {whole.b->name, whole.b->value.rows(row, end), whole.b->grad.rows(row, end)}});
      row = end;
    }
  }
}

Adapter Adapter::create(Context& ctx, const ModelConfig& config, const LoraConfig& lora,
                        uint64_t seed) {
  check_rank(config, lora);
  Adapter adapter(ctx, config, lora);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const Projection p : adapter.adapted_) {
      const LoraPair pair = adapter.pair(layer, p);
      // PEFT's kaiming_uniform_(a = sqrt(5)): the bound is 1 / sqrt(inputs).
      const double bound = 1.0 / std::sqrt(static_cast<double>(config.in_features(p)));
      const auto stream = static_cast<uint64_t>(layer) * 8 + static_cast<uint64_t>(parts_of(p)[0]);
      const Tensor& a = pair.a->value;
      ctx.upload<float>(a, uniform_matrix(a.size(), bound, seed, stream));
    }
  }
  return adapter;
}

LoraPair Adapter::pair(int64_t layer, Projection projection) const {
  const std::vector<Part>& parts = parts_[static_cast<size_t>(projection)];
  if (!parts.empty()) {
    const Part& part = parts[static_cast<size_t>(layer)];
    return {&part.a, &part.b};
  }
  const int slot = slot_[static_cast<size_t>(projection)];
  if (slot < 0) return {};
  const auto first = 2 * (static_cast<size_t>(layer) * adapted_.size() + static_cast<size_t>(slot));
  return {&parameters_[first], &parameters_[first + 1]};
}

bool Adapter::adapts(Projection projection) const {
  const auto i = static_cast<size_t>(projection);
  return slot_[i] >= 0 || !parts_[i].empty();
}

}  // namespace wgrad::model
