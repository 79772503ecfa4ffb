#pragma once

#include <string>

#include "text/text_assets.h"

namespace wgrad::data {

/// Tokenizer and chat template of a Hugging Face folder or of a .gguf file.
text::TextAssets load_model_text(const std::string& model);

}  // namespace wgrad::data
