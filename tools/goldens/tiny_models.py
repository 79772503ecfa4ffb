"""The tiny models of make_model_goldens.py and the runs that train them."""

VOCAB = 149
EOS = 2
ROW_LENGTHS = [17, 1, 9, 23, 2]
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=128, bos_token_id=1, eos_token_id=EOS,
              hidden_act="silu", rms_norm_eps=1e-5, attention_dropout=0.0)

MODELS = {
    "llama2": dict(model_type="llama", hidden_size=36, intermediate_size=47, num_hidden_layers=2,
                   num_attention_heads=2, num_key_value_heads=2, rope_theta=10000.0,
                   tie_word_embeddings=False),
    "llama3": dict(model_type="llama", hidden_size=32, intermediate_size=44, num_hidden_layers=3,
                   num_attention_heads=4, num_key_value_heads=2, rope_theta=500.0,
                   tie_word_embeddings=True,
                   rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                     high_freq_factor=4.0, original_max_position_embeddings=32)),
    "llama_bias": dict(model_type="llama", hidden_size=36, intermediate_size=31,
                       num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                       rope_theta=10000.0, tie_word_embeddings=True, attention_bias=True,
                       mlp_bias=True, rope_scaling=dict(rope_type="linear", factor=2.5)),
    "smollm2": dict(model_type="llama", hidden_size=54, intermediate_size=49, num_hidden_layers=2,
                    num_attention_heads=9, num_key_value_heads=3, rope_theta=100000.0,
                    tie_word_embeddings=True),
    "mistral": dict(model_type="mistral", hidden_size=40, intermediate_size=45,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                    rope_theta=10000.0, sliding_window=5, tie_word_embeddings=False),
    "qwen2": dict(model_type="qwen2", hidden_size=42, intermediate_size=50, num_hidden_layers=2,
                  num_attention_heads=3, num_key_value_heads=1, rope_theta=1000000.0,
                  use_sliding_window=False, sliding_window=6, tie_word_embeddings=True),
    "qwen2_window": dict(model_type="qwen2", hidden_size=32, intermediate_size=37,
                         num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                         rope_theta=10000.0, use_sliding_window=True, sliding_window=4,
                         max_window_layers=1, tie_word_embeddings=False),
    "qwen3": dict(model_type="qwen3", hidden_size=40, intermediate_size=48, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=14, rope_theta=1000000.0,
                  use_sliding_window=False, tie_word_embeddings=True),
    "smollm3": dict(model_type="smollm3", hidden_size=32, intermediate_size=40,
                    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                    rope_theta=5000.0, no_rope_layers=[1, 0, 1], use_sliding_window=True,
                    sliding_window=5, tie_word_embeddings=True, pad_token_id=0),
    "phi3": dict(model_type="phi3", hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                 num_attention_heads=2, num_key_value_heads=1, rope_theta=10000.0,
                 partial_rotary_factor=0.75, sliding_window=12, tie_word_embeddings=True,
                 original_max_position_embeddings=10, pad_token_id=0,
                 rope_scaling=dict(rope_type="longrope",
                                   short_factor=[1.0, 1.1, 1.25, 1.5, 2.0, 2.5],
                                   long_factor=[1.0, 1.5, 3.0, 6.0, 11.0, 12.5])),
    "olmo2": dict(model_type="olmo2", hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, rope_theta=500000.0,
                  tie_word_embeddings=False, pad_token_id=0),
    "gemma3": dict(model_type="gemma3_text", hidden_size=32, intermediate_size=40,
                   num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=24,
                   hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=20,
                   sliding_window=5, sliding_window_pattern=2, final_logit_softcapping=7.0,
                   tie_word_embeddings=True, pad_token_id=0,
                   rope_scaling=dict(rope_type="linear", factor=8.0), rope_theta=1000000.0,
                   rope_local_base_freq=10000.0),
    "gemma2": dict(model_type="gemma2", hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                   num_attention_heads=2, num_key_value_heads=1, head_dim=24,
                   hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=20,
                   sliding_window=4, final_logit_softcapping=6.0, attn_logit_softcapping=2.0,
                   rope_theta=10000.0, tie_word_embeddings=True, pad_token_id=0),
    "granite": dict(model_type="granite", hidden_size=32, intermediate_size=40,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    rope_theta=10000.0, embedding_multiplier=3.0, logits_scaling=2.5,
                    residual_multiplier=0.4, attention_multiplier=0.2, attention_bias=True,
                    mlp_bias=True, tie_word_embeddings=True, pad_token_id=0),
    "llama_dynamic": dict(model_type="llama", hidden_size=24, intermediate_size=30,
                          num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                          max_position_embeddings=16, rope_theta=10000.0,
                          tie_word_embeddings=True,
                          rope_scaling=dict(rope_type="dynamic", factor=3.0)),
    "llama_yarn": dict(model_type="llama", hidden_size=32, intermediate_size=30,
                       num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                       rope_theta=100.0, tie_word_embeddings=True,
                       rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=4.0,
                                         original_max_position_embeddings=32)),
    # Parts of fused layers whose lengths begin where a GPU can bind them.
    "phi3_wide": dict(model_type="phi3", hidden_size=16, intermediate_size=64,
                      num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                      head_dim=32, rope_theta=10000.0, tie_word_embeddings=True, pad_token_id=0,
                      vocab_size=53),
    # A text model among others, which its text never asks for.
    "gemma3_whole": dict(
        model_type="gemma3", mm_tokens_per_image=1, boi_token_index=50, eoi_token_index=51,
        image_token_index=52,
        text_config=dict(hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                         hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=20,
                         sliding_window=5, sliding_window_pattern=2, pad_token_id=0,
                         rope_scaling=dict(rope_type="linear", factor=8.0),
                         rope_theta=1000000.0, rope_local_base_freq=10000.0),
        vision_config=dict(hidden_size=4, intermediate_size=4, num_hidden_layers=1,
                           num_attention_heads=1, image_size=4, patch_size=2, num_channels=1)),
}

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]

# Enough words for a test, and small files.
for name in ["smollm3", "phi3", "olmo2", "gemma3", "gemma2", "granite", "llama_dynamic",
             "llama_yarn"]:
    MODELS[name]["vocab_size"] = 53


MODELS["gemma3_whole"]["text_config"]["vocab_size"] = 53


def text_settings(name):
    return MODELS[name].get("text_config", MODELS[name])


def vocabulary(name):
    return text_settings(name).get("vocab_size", VOCAB)


def linear_layers(name):
    if "text_config" in MODELS[name]:
        return rf"model\.language_model\..*\.({'|'.join(ALL)})"
    return FUSED if MODELS[name]["model_type"] == "phi3" else ALL


# The options as the command line takes them; everything else is its default.
RUNS = {
    "lora_llama3": dict(model="llama3", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                        schedule="cosine", batch_size=2, grad_accum=2),
    "rslora_qwen3": dict(model="qwen3", method="lora", rank=3, alpha=5, rslora=True,
                         targets=["q_proj", "v_proj", "down_proj"], lr=5e-3, schedule="linear",
                         warmup_steps=2, batch_size=3, grad_accum=1, zero_b=True,
                         max_grad_norm=0.5),
    "lora_mistral_mlp": dict(model="mistral", method="lora", rank=5, alpha=5,
                             targets=["up_proj", "gate_proj"], lr=1e-3, schedule="constant",
                             warmup_ratio=0.0, batch_size=4, grad_accum=1, weight_decay=0.1),
    "qlora_qwen2": dict(model="qwen2", method="qlora", rank=4, alpha=16, targets=ALL, lr=2e-3,
                        schedule="cosine", warmup_ratio=0.2, batch_size=2, grad_accum=1),
    "full_smollm2": dict(model="smollm2", method="full", lr=1e-3, schedule="cosine",
                         warmup_ratio=0.1, batch_size=2, grad_accum=2, weight_decay=0.1),
    "full_qwen2_window": dict(model="qwen2_window", method="full", lr=2e-3, schedule="linear",
                              batch_size=3, grad_accum=1, max_grad_norm=0.0),
    "lora_smollm3": dict(model="smollm3", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                         schedule="cosine", batch_size=2, grad_accum=1),
    "lora_phi3": dict(model="phi3", method="lora", rank=4, alpha=8, targets=FUSED, lr=2e-3,
                      schedule="cosine", batch_size=2, grad_accum=1),
    "qlora_phi3": dict(model="phi3", method="qlora", rank=4, alpha=8,
                       targets=["qkv_proj", "gate_up_proj"], lr=2e-3, schedule="linear",
                       batch_size=2, grad_accum=1),
    "full_phi3": dict(model="phi3", method="full", lr=1e-3, schedule="linear", batch_size=2,
                      grad_accum=1),
    "lora_olmo2": dict(model="olmo2", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                       schedule="cosine", batch_size=2, grad_accum=1),
    "lora_gemma3": dict(model="gemma3", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                        schedule="cosine", batch_size=2, grad_accum=1),
    "full_gemma3": dict(model="gemma3", method="full", lr=1e-3, schedule="linear", batch_size=2,
                        grad_accum=1, weight_decay=0.1),
    "lora_gemma2": dict(model="gemma2", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                        schedule="cosine", batch_size=2, grad_accum=1),
    "lora_granite": dict(model="granite", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                         schedule="cosine", batch_size=2, grad_accum=1),
}
STEPS = 10
DEFAULTS = dict(weight_decay=0.01, beta1=0.9, beta2=0.999, eps=1e-8, max_grad_norm=1.0,
                warmup_ratio=0.03)
