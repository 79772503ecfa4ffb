#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct wgrad_tokenizer;

namespace wgrad::text {

struct GgufTokenizerParts;

/// The ids of a text; `offsets[i]` is where token i came from: [start, end) in bytes of the text.
/// Tokens that the tokenizer itself added (BOS, EOS) have an empty range at 0. A character that
/// takes several tokens gives each of them the whole character.
struct Encoding {
  std::vector<uint32_t> ids;
  std::vector<std::pair<size_t, size_t>> offsets;
};

/// A token that is matched in the text before the model of the tokenizer sees it.
struct AddedToken {
  uint32_t id;
  std::string content;
  bool special;
};

/// Owns a loaded tokenizer. Its functions may be called from several threads at once.
class Tokenizer {
 public:
  static Tokenizer from_json_file(const std::filesystem::path& path);
  /// `where` names the source in errors.
  static Tokenizer from_json(std::string_view json, std::string_view where);
  static Tokenizer from_gguf_parts(const GgufTokenizerParts& parts, std::string_view where);

  /// Special tokens that stand in the text are found; `add_special_tokens` adds the tokenizer's
  /// own BOS and EOS, if it has any. The text must be UTF-8.
  Encoding encode(std::string_view text, bool add_special_tokens) const;
  /// Bytes that are not UTF-8 become U+FFFD; ids out of the vocabulary are left out.
  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const;

  std::optional<std::string> token(uint32_t id) const;
  std::optional<uint32_t> id(std::string_view token) const;
  /// With the added tokens. Ids may be larger than this where the vocabulary has holes.
  size_t vocabulary_size() const;
  /// By id.
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }
  bool is_special(uint32_t id) const;
  /// Bytes [start, end) of the first special token that begins in the text at `from` or later; of
  /// those that begin at one place the longest.
  std::optional<std::pair<size_t, size_t>> first_special(std::string_view text, size_t from) const;

  /// What the files around the tokenizer call its begin and end of a sequence.
  std::optional<uint32_t> bos_id() const { return bos_id_; }
  std::optional<uint32_t> eos_id() const { return eos_id_; }
  void set_bos_id(std::optional<uint32_t> id) { bos_id_ = id; }
  void set_eos_id(std::optional<uint32_t> id) { eos_id_ = id; }

  /// Whether encode() with add_special_tokens puts BOS first.
  bool adds_bos() const;

 private:
  struct Release {
    void operator()(wgrad_tokenizer* tokenizer) const;
  };

  explicit Tokenizer(wgrad_tokenizer* handle);

  std::unique_ptr<wgrad_tokenizer, Release> handle_;
  std::string where_;
  std::vector<AddedToken> added_tokens_;
  std::vector<std::string> special_tokens_;  ///< sorted; none is empty
  std::optional<uint32_t> bos_id_;
  std::optional<uint32_t> eos_id_;
};

/// Turns ids into text as they come. The pieces joined are the decoded whole; a piece is held back
/// while it ends inside a character.
class StreamDecoder {
 public:
  /// `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  /// The text that `id` completes; may be empty.
  std::string push(uint32_t id);
  /// What was held back.
  std::string finish();

 private:
  std::string advance(bool at_end);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<uint32_t> ids_;  // those before `shown_` are context: spaces depend on it
  size_t shown_ = 0;
};

}  // namespace wgrad::text
