#include "model/families/family.h"

namespace wgrad::model {

std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {"gemma2",
       "Gemma2ForCausalLM",
       configure_gemma2,
       {.tied_embeddings = true, .max_positions = 8192, .kv_heads = 4, .head_dim = 256}},
      {"gemma3_text",
       "Gemma3ForCausalLM",
       configure_gemma3,
       {.tied_embeddings = true, .max_positions = 131072, .kv_heads = 4, .head_dim = 256}},
      {"granite", "GraniteForCausalLM", configure_granite},
      {"llama", "LlamaForCausalLM", configure_llama},
      {"mistral", "MistralForCausalLM", configure_mistral},
      {"olmo2", "Olmo2ForCausalLM", configure_olmo2, {.rms_norm_eps = 1e-5}},
      {"phi3", "Phi3ForCausalLM", configure_phi3, {.rms_norm_eps = 1e-5, .max_positions = 4096}},
      {"qwen2", "Qwen2ForCausalLM", configure_qwen2},
      {"qwen3", "Qwen3ForCausalLM", configure_qwen3},
      {"smollm3",
       "SmolLM3ForCausalLM",
       configure_smollm3,
       {.tied_embeddings = true, .max_positions = 32768, .kv_heads = 4, .rope = {.theta = 2e6}}},
  };
  return kFamilies;
}

}  // namespace wgrad::model
