#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "io/checkpoint_source.h"
#include "io/gguf.h"

namespace wgrad::io {

/// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; nothing for a name that has
/// no counterpart in a Hugging Face checkpoint of the architecture.
std::optional<std::string> hf_tensor_name(std::string_view gguf_name,
                                          std::string_view architecture = "llama");

/// The reverse; "lm_head.weight" -> "output.weight".
std::optional<std::string> gguf_tensor_name(std::string_view hf_name,
                                            std::string_view architecture = "llama");

/// Within a head of `head` rows, the row of Hugging Face's half-split rotary order that stands at
/// `row` of a file that rotates neighbouring pairs (the architecture "llama" and its relatives).
std::int64_t half_split_row(std::int64_t row, std::int64_t head);

/// A Hugging Face style config.json made from the metadata and the tensors' shapes.
/// An architecture that is not read here is an input error naming it.
nlohmann::json gguf_config_json(const GgufFile& file);

/// The tensors under their Hugging Face names. Where llama.cpp rotates neighbouring pairs (llama,
/// granite, smollm3), the rows of q and k and their biases are put back into the half-split order
/// of Hugging Face; where it stores norms as 1 + w (gemma2, gemma3), 1 is taken off.
std::unique_ptr<TensorSource> open_gguf_source(std::shared_ptr<const GgufFile> file);

}  // namespace wgrad::io
