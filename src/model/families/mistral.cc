// Mistral 7B and its relatives: Llama with a sliding window.

#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace wgrad::model {

void configure_mistral(ConfigReader& reader, ModelConfig& config) {
  constexpr int64_t kMostWindow = int64_t{1} << 30;
  const bool has_window = reader.has("sliding_window");
  const int64_t window = has_window ? reader.size("sliding_window", kMostWindow) : 0;
  config.windows.assign(static_cast<size_t>(config.layers), window);
}

}  // namespace wgrad::model
