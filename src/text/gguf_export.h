#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "text/gguf_tokenizer.h"
#include "text/text_assets.h"

namespace wgrad::text {

/// A tokenizer in GGUF's terms, and what a reader of the file does differently, a sentence each.
struct GgufTokenizer {
  GgufTokenizerParts parts;
  std::vector<std::string> notes;
};

/// The tokenizer and template of a Hugging Face folder, `assets` loaded from it, as the values of
/// tokenizer.* keys; ids without a token up to `rows`, the model's embeddings, become unused ones.
/// A tokenizer that has no such form (no BPE, a pre-tokenizer that llama.cpp does not know, more
/// tokens than rows) is an input error that says why.
GgufTokenizer gguf_tokenizer_of_folder(const std::filesystem::path& folder,
                                       const TextAssets& assets, int64_t rows);

}  // namespace wgrad::text
