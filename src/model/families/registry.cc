#include "model/families/family.h"

namespace wgrad::model {

// The defaults are those of transformers' configuration classes, in full: published files leave out
// what equals them.
std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {"gemma2", "Gemma2ForCausalLM", configure_gemma2,
       R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
           "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
           "head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096,
           "query_pre_attn_scalar": 256, "final_logit_softcapping": 30.0,
           "attn_logit_softcapping": 50.0, "tie_word_embeddings": true})"},
      {"gemma3_text", "Gemma3ForCausalLM", configure_gemma3,
       R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
           "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
           "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096,
           "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "rope_theta": 1000000.0,
           "rope_local_base_freq": 10000.0, "tie_word_embeddings": true})"},
      {"granite", "GraniteForCausalLM", configure_granite,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
           "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048})"},
      {"llama", "LlamaForCausalLM", configure_llama,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
           "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048})"},
      {"mistral", "MistralForCausalLM", configure_mistral,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "max_position_embeddings": 131072, "sliding_window": 4096})"},
      {"olmo2", "Olmo2ForCausalLM", configure_olmo2,
       R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
           "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
           "rms_norm_eps": 1e-5})"},
      {"phi3", "Phi3ForCausalLM", configure_phi3,
       R"({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
           "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096,
           "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
      {"qwen2", "Qwen2ForCausalLM", configure_qwen2,
       R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
           "max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28})"},
      {"qwen3", "Qwen3ForCausalLM", configure_qwen3,
       R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
           "head_dim": 128, "max_position_embeddings": 32768, "sliding_window": 4096,
           "max_window_layers": 28})"},
      {"smollm3", "SmolLM3ForCausalLM", configure_smollm3,
       R"({"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
           "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
           "max_position_embeddings": 32768, "no_rope_layer_interval": 4, "rope_theta": 2000000.0,
           "tie_word_embeddings": true})"},
  };
  return kFamilies;
}

std::span<const Composite> composites() {
  static constexpr std::string_view kGemma3Parts[] = {"vision_tower", "multi_modal_projector"};
  static constexpr Composite kComposites[] = {
      {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", "model.language_model",
       kGemma3Parts},
  };
  return kComposites;
}

}  // namespace wgrad::model
