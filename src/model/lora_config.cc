#include "model/lora_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "model/model.h"
#include "text/pattern.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

constexpr std::string_view kAllLinear = "all-linear";

void check_number(const char* name, double value, bool ok, const char* expected) {
  if (!ok) throw input_error(name, fmt::format("{}", value), expected);
}

void check_settings(const LoraConfig& lora) {
  const auto check_rank = [](int64_t rank) {
    check_number("rank", static_cast<double>(rank), rank >= 1, "at least 1");
  };
  const auto check_alpha = [](double alpha) {
    check_number("alpha", alpha, std::isfinite(alpha) && alpha > 0, "a number greater than 0");
  };
  check_rank(lora.rank);
  check_alpha(lora.alpha);
  for (const auto& [name, rank] : lora.rank_pattern) check_rank(rank);
  for (const auto& [name, alpha] : lora.alpha_pattern) check_alpha(alpha);
  check_number("dropout", lora.dropout, lora.dropout >= 0 && lora.dropout < 1,
               "a number in [0, 1)");
}

bool ends_in(std::string_view module, std::string_view name) {
  if (!module.ends_with(name) || name.empty()) return false;
  const size_t rest = module.size() - name.size();
  return rest == 0 || module[rest - 1] == '.';
}

bool has_part(const std::string& module, const std::string& name) {
  return fmt::format(".{}.", module).find(fmt::format(".{}.", name)) != std::string::npos;
}

/// The settings of a rank or alpha pattern; remembers which of them were used.
template <typename T>
class ByName {
 public:
  ByName(const char* setting, const std::map<std::string, T>& values) : setting_(setting) {
    for (const auto& [name, value] : values) {
      entries_.push_back(
          {name, text::Pattern(fmt::format(R"((?:.*\.)?(?:{}))", name), setting), value, false});
    }
  }

  T of(const std::string& module, T otherwise) {
    const Entry* found = nullptr;
    for (Entry& entry : entries_) {
      if (!entry.pattern.matches(module)) continue;
      entry.used = true;
      if (found != nullptr && found->value != entry.value) {
        throw input_error(
            setting_,
            fmt::format("\"{}\" and \"{}\" both match {}", found->name, entry.name, module),
            "one value a module", "make the names more precise");
      }
      found = &entry;
    }
    return found == nullptr ? otherwise : found->value;
  }

  void refuse_unused() const {
    for (const Entry& entry : entries_) {
      if (entry.used) continue;
      throw input_error(setting_, fmt::format("\"{}\" matches no adapted module", entry.name),
                        "the names of adapted modules or their ends");
    }
  }

 private:
  struct Entry {
    std::string name;
    text::Pattern pattern;
    T value;
    bool used;
  };
  const char* setting_;
  std::vector<Entry> entries_;
};

/// Which modules are adapted, as PEFT's check_target_module_exists decides it.
class Targets {
 public:
  explicit Targets(const LoraConfig& lora) : lora_(lora), used_(lora.targets.size()) {
    if (lora.targets.empty() && lora.target_pattern.empty()) {
      throw input_error("targets", "no names", "all-linear or module names");
    }
    if (!lora.target_pattern.empty()) pattern_.emplace(lora.target_pattern, "targets");
    if (!lora.exclude_pattern.empty()) exclude_.emplace(lora.exclude_pattern, "exclude");
    for (const std::string& name : lora.layer_lists) {
      layer_lists_.emplace_back(fmt::format(R"((?:.*\.)?(?:{}))", name), "layers_pattern");
    }
  }

  bool adapt(const AdaptedModule& module) {
    const bool found = pattern_ ? pattern_->matches(module.name) : named(module);
    return found && !excluded(module.name);
  }

  const std::string* unused() const {
    const auto at = std::find(used_.begin(), used_.end(), false);
    if (pattern_ || at == used_.end()) return nullptr;
    return &lora_.targets[static_cast<size_t>(at - used_.begin())];
  }

 private:
  /// A full name is taken whatever its block.
  bool named(const AdaptedModule& module) {
    bool found = false;
    for (size_t i = 0; i < lora_.targets.size(); ++i) {
      const std::string& target = lora_.targets[i];
      const bool all = target == kAllLinear && module.kind == AdaptedModule::Kind::kLinear;
      if (module.name != target && !((all || ends_in(module.name, target)) && in_layers(module))) {
        continue;
      }
      found = used_[i] = true;
    }
    return found;
  }

  bool in_layers(const AdaptedModule& module) const {
    if (lora_.layers.empty()) return true;
    if (module.kind != AdaptedModule::Kind::kLinear) return false;
    constexpr std::string_view kList = ".layers";
    const std::string list = module.name.substr(0, module.name.find(kList) + kList.size());
    const bool listed = layer_lists_.empty() ||
                        std::any_of(layer_lists_.begin(), layer_lists_.end(),
                                    [&](const text::Pattern& p) { return p.matches(list); });
    return listed &&
           std::find(lora_.layers.begin(), lora_.layers.end(), module.layer) != lora_.layers.end();
  }

  /// A module that is trained whole is not adapted.
  bool excluded(const std::string& module) const {
    if (exclude_ && exclude_->matches(module)) return true;
    const auto any = [](const std::vector<std::string>& names, const auto& matches) {
      return std::any_of(names.begin(), names.end(), matches);
    };
    return any(lora_.exclude, [&](const std::string& name) { return ends_in(module, name); }) ||
           any(lora_.modules_to_save,
               [&](const std::string& name) { return has_part(module, name); });
  }

  const LoraConfig& lora_;
  std::vector<bool> used_;
  std::optional<text::Pattern> pattern_, exclude_;
  std::vector<text::Pattern> layer_lists_;
};

/// Every module that an adapter can stand beside.
std::vector<AdaptedModule> adaptable_modules(const ModelConfig& config) {
  using Kind = AdaptedModule::Kind;
  std::vector<AdaptedModule> modules;
  modules.push_back({.name = config.table_name(),
                     .kind = Kind::kEmbedding,
                     .in_features = config.vocab_size,
                     .out_features = config.hidden_size});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const Projection p : config.projections()) {
      modules.push_back({.name = config.module_name(layer, p),
                         .kind = Kind::kLinear,
                         .layer = layer,
                         .projection = p,
                         .in_features = config.in_features(p),
                         .out_features = config.out_features(p)});
      for (const Projection part : parts_of(p)) {
        modules.back().part_rows.push_back(config.out_features(part));
      }
    }
  }
  modules.push_back({.name = "lm_head",
                     .kind = Kind::kOutput,
                     .in_features = config.hidden_size,
                     .out_features = config.vocab_size});
  return modules;
}

[[noreturn]] void refuse_target(const ModelConfig& config, const LoraConfig& lora,
                                const std::string& target) {
  std::vector<std::string_view> names;
  for (const Projection p : config.projections()) {
    names.push_back(projection_name(p).substr(projection_name(p).find('.') + 1));
  }
  throw input_error(
      "targets",
      fmt::format("\"{}\" matches no layer{}", target,
                  lora.layers.empty() && lora.exclude.empty() ? "" : " that is not left out"),
      fmt::format("all-linear, or names out of {}, embed_tokens, lm_head", fmt::join(names, ", ")));
}

void check_module(const AdaptedModule& module, const LoraConfig& lora) {
  if (!lora.dora || module.kind != AdaptedModule::Kind::kEmbedding) return;
  throw input_error("dora", "embed_tokens is adapted", "DoRA on linear layers alone",
                    "leave embed_tokens out of the targets, or train it whole (modules_to_save)");
}

/// The regular expression that matches this text alone.
std::string literal(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

/// "model.layers.0.mlp" and what it lies in; not the model itself.
bool lies_in(std::string_view tensor, const std::string& name) {
  for (size_t dot = tensor.rfind('.'); dot != std::string_view::npos;
       dot = tensor.rfind('.', dot - 1)) {
    if (tensor.substr(0, dot).ends_with(name)) return true;
  }
  return false;
}

}  // namespace

float lora_scale(int64_t rank, double alpha, bool rslora) {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (rslora ? std::sqrt(r) : r));
}

std::vector<AdaptedModule> adapted_modules(const ModelConfig& config, const LoraConfig& lora,
                                           Unmatched unmatched) {
  check_settings(lora);
  Targets targets(lora);
  ByName<int64_t> ranks("rank_pattern", lora.rank_pattern);
  ByName<double> alphas("alpha_pattern", lora.alpha_pattern);
  std::vector<AdaptedModule> modules;
  for (AdaptedModule& module : adaptable_modules(config)) {
    if (!targets.adapt(module)) continue;
    check_module(module, lora);
    module.rank = ranks.of(module.name, lora.rank);
    module.scale = lora_scale(module.rank, alphas.of(module.name, lora.alpha), lora.rslora);
    modules.push_back(std::move(module));
  }
  if (unmatched == Unmatched::kRefuse) {
    if (const std::string* target = targets.unused()) refuse_target(config, lora, *target);
    ranks.refuse_unused();
    alphas.refuse_unused();
    for (const int64_t layer : lora.layers) {
      if (layer >= 0 && layer < config.layers) continue;
      throw input_error("layers", fmt::format("{}", layer),
                        fmt::format("numbers from 0 to {}", config.layers - 1));
    }
  }
  if (modules.empty()) {
    refuse_target(config, lora,
                  lora.target_pattern.empty() ? lora.targets.front() : lora.target_pattern);
  }
  return modules;
}

std::vector<Parameters::Spec> saved_tensors(const ModelConfig& config, const LoraConfig& lora,
                                            Unmatched unmatched) {
  if (lora.modules_to_save.empty()) return {};
  std::vector<Parameters::Spec> tensors = checkpoint_tensors(config);
  if (config.tied_embeddings) {
    tensors.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  std::set<std::string> used;
  std::erase_if(tensors, [&](const Parameters::Spec& tensor) {
    bool found = false;
    for (const std::string& name : lora.modules_to_save) {
      if (name.empty() || !lies_in(tensor.name, name)) continue;
      used.insert(name);
      found = true;
    }
    return !found;
  });
  for (const std::string& name : lora.modules_to_save) {
    if (unmatched == Unmatched::kIgnore || used.contains(name)) continue;
    throw input_error("modules_to_save", fmt::format("\"{}\" matches no module", name),
                      "names of modules or their ends, as embed_tokens, lm_head, norm");
  }
  for (const AdaptedModule& module : adapted_modules(config, lora, Unmatched::kIgnore)) {
    for (const Parameters::Spec& tensor : tensors) {
      if (tensor.name != module.name + ".weight") continue;
      throw input_error("modules_to_save", fmt::format("{} is adapted too", module.name),
                        "modules that are trained whole, or adapted", "give its whole name");
    }
  }
  return tensors;
}

LoraConfig for_whole_class(const ModelConfig& config, LoraConfig lora) {
  if (config.other_parts.empty()) return lora;
  std::vector<std::string> left_out;
  const auto add = [&](std::string pattern) {
    const bool known = lora.exclude_pattern.find(pattern) != std::string::npos;
    if (!known) left_out.push_back(std::move(pattern));
  };
  for (const std::string& part : config.other_parts) add(fmt::format(R"((?:.*\.)?{}\..*)", part));
  for (const std::string& name : lora.exclude) {
    add(fmt::format(R"((?:.*\.)?{})", literal(name)));
  }
  if (!lora.exclude_pattern.empty()) left_out.insert(left_out.begin(), lora.exclude_pattern);
  lora.exclude_pattern = fmt::format("{}", fmt::join(left_out, "|"));
  lora.exclude.clear();
  if (lora.modules_to_save.empty()) return lora;
  const std::vector<Parameters::Spec> saved = saved_tensors(config, lora, Unmatched::kIgnore);
  lora.modules_to_save.clear();
  for (const Parameters::Spec& tensor : saved) {
    std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    if (std::ranges::count(lora.modules_to_save, module) == 0) {
      lora.modules_to_save.push_back(std::move(module));
    }
  }
  return lora;
}

}  // namespace wgrad::model
