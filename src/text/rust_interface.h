#pragma once

// The C interface of the text crate (src/text/rust/src/lib.rs). Only src/text includes this.

#include <cstddef>
#include <cstdint>

extern "C" {

struct wgrad_bytes {
  uint8_t* data;
  size_t size;
};
struct wgrad_ids {
  uint32_t* data;
  size_t size;
};
struct wgrad_offsets {
  size_t* data;
  size_t size;
};

struct wgrad_tokenizer;
struct wgrad_template;
struct wgrad_pattern;

void wgrad_text_buffer_free(wgrad_bytes buffer);
void wgrad_text_ids_free(wgrad_ids buffer);
void wgrad_text_offsets_free(wgrad_offsets buffer);

// Functions that return int: 0 is success; otherwise `error`, where there is one, holds the text.

int wgrad_tokenizer_new(const uint8_t* json, size_t size, wgrad_tokenizer** out,
                        wgrad_bytes* error);
void wgrad_tokenizer_free(wgrad_tokenizer* tokenizer);
int wgrad_tokenizer_encode(const wgrad_tokenizer* tokenizer, const uint8_t* text, size_t size,
                           bool add_special_tokens, wgrad_ids* ids, wgrad_offsets* offsets,
                           wgrad_bytes* error);
int wgrad_tokenizer_decode(const wgrad_tokenizer* tokenizer, const uint32_t* ids, size_t count,
                           bool skip_special_tokens, wgrad_bytes* out, wgrad_bytes* error);
int wgrad_tokenizer_token(const wgrad_tokenizer* tokenizer, uint32_t id, wgrad_bytes* out);
int wgrad_tokenizer_id(const wgrad_tokenizer* tokenizer, const uint8_t* text, size_t size,
                       uint32_t* out);
size_t wgrad_tokenizer_vocabulary_size(const wgrad_tokenizer* tokenizer);
int wgrad_tokenizer_added_tokens(const wgrad_tokenizer* tokenizer, wgrad_bytes* out,
                                 wgrad_bytes* error);

int wgrad_template_new(const uint8_t* source, size_t size, wgrad_template** out,
                       wgrad_bytes* error);
void wgrad_template_free(wgrad_template* chat_template);
int wgrad_template_render(const wgrad_template* chat_template, const uint8_t* variables,
                          size_t size, int64_t local_seconds, wgrad_bytes* out, wgrad_bytes* error);

int wgrad_pattern_new(const uint8_t* expression, size_t size, wgrad_pattern** out,
                      wgrad_bytes* error);
void wgrad_pattern_free(wgrad_pattern* pattern);
// 1 where the whole text matches, else 0.
int wgrad_pattern_matches(const wgrad_pattern* pattern, const uint8_t* text, size_t size);
}

#include <string>
#include <string_view>

namespace wgrad::text {

inline const uint8_t* bytes(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

/// Copies and releases a buffer of the crate.
inline std::string take(wgrad_bytes buffer) {
  std::string text(reinterpret_cast<const char*>(buffer.data), buffer.size);
  wgrad_text_buffer_free(buffer);
  return text;
}

}  // namespace wgrad::text
