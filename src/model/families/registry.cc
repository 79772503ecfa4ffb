#include "model/families/family.h"

namespace wgrad::model {

std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {"llama", "LlamaForCausalLM", configure_llama},
      {"mistral", "MistralForCausalLM", configure_mistral},
      {"qwen2", "Qwen2ForCausalLM", configure_qwen2},
      {"qwen3", "Qwen3ForCausalLM", configure_qwen3},
  };
  return kFamilies;
}

}  // namespace wgrad::model
