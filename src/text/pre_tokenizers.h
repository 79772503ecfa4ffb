#pragma once

#include <span>
#include <string_view>

namespace wgrad::text {

/// The pattern of a byte-level pre-tokenizer that names none of its own: GPT-2's.
extern const std::string_view kGpt2Pattern;

/// How llama.cpp's name for a pre-tokenizer splits a text before the merges.
struct PreTokenizer {
  std::string_view name;
  std::string_view pattern;
  bool single_digits;  // every numeric character apart, before the pattern
  bool ignore_merges;  // a word that is a token is that token
  bool add_bos;        // unless the file says otherwise
  bool nfc;            // the text is composed first, as this family's own tokenizer does
};

/// All that are known here. Of several that do the same, the first is the one to write.
std::span<const PreTokenizer> pre_tokenizers();

}  // namespace wgrad::text
