// Mistral 7B and its relatives: Llama with a sliding window.

#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace wgrad::model {

void configure_mistral(ConfigReader& reader, ModelConfig& config) {
  // null says that there is no window; only a file that is silent means the family's 4096.
  constexpr int64_t kDefaultWindow = 4096;
  constexpr int64_t kMostWindow = int64_t{1} << 30;
  int64_t window = 0;
  if (!reader.present("sliding_window")) {
    window = kDefaultWindow;
  } else if (reader.has("sliding_window")) {
    window = reader.size("sliding_window", kMostWindow);
  }
  config.windows.assign(static_cast<size_t>(config.layers), window);
}

}  // namespace wgrad::model
