#include "text/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/files.h"
#include "text/gguf_tokenizer.h"
#include "text/rust_interface.h"
#include "wgrad/error.h"

namespace wgrad::text {
namespace {

constexpr std::string_view kMend = "check the tokenizer: download its files again";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::vector<AddedToken> read_added_tokens(const wgrad_tokenizer* handle, std::string_view where) {
  wgrad_bytes list{};
  wgrad_bytes error{};
  if (wgrad_tokenizer_added_tokens(handle, &list, &error) != 0) {
    throw input_error(where, take(error));
  }
  std::vector<AddedToken> tokens;
  for (const auto& token : nlohmann::json::parse(take(list))) {
    tokens.push_back({token.at("id").get<uint32_t>(), token.at("content").get<std::string>(),
                      token.at("special").get<bool>()});
  }
  return tokens;
}

std::vector<std::string> sorted_specials(const std::vector<AddedToken>& tokens) {
  std::vector<std::string> specials;
  for (const AddedToken& token : tokens) {
    if (token.special && !token.content.empty()) specials.push_back(token.content);
  }
  std::ranges::sort(specials);
  return specials;
}

/// How many bytes the longest of the sorted tokens takes that the text begins with; 0 if none does.
/// Byte by byte, only the tokens that are like the text so far are left.
size_t token_at(std::string_view text, std::span<const std::string> tokens) {
  size_t length = 0;
  for (size_t depth = 0; depth < text.size(); ++depth) {
    const auto byte = [depth](const std::string& token) {
      return depth < token.size() ? static_cast<unsigned char>(token[depth]) : -1;
    };
    const auto next =
        std::ranges::equal_range(tokens, static_cast<unsigned char>(text[depth]), {}, byte);
    tokens = {next.begin(), next.end()};
    if (tokens.empty()) break;
    if (tokens.front().size() == depth + 1) length = depth + 1;
    if (tokens.size() == 1) return text.starts_with(tokens[0]) ? tokens[0].size() : length;
  }
  return length;
}

}  // namespace

void Tokenizer::Release::operator()(wgrad_tokenizer* tokenizer) const {
  wgrad_tokenizer_free(tokenizer);
}

Tokenizer::Tokenizer(wgrad_tokenizer* handle) : handle_(handle) {}

Tokenizer Tokenizer::from_json_file(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where) {
  wgrad_tokenizer* handle = nullptr;
  wgrad_bytes error{};
  if (wgrad_tokenizer_new(bytes(json), json.size(), &handle, &error) != 0) {
    throw input_error(where, "the tokenizer cannot be read (" + take(error) + ")",
                      "expected a tokenizer.json of the Hugging Face tokenizers library",
                      "download the file again, or save it anew with transformers' "
                      "AutoTokenizer.save_pretrained");
  }
  Tokenizer tokenizer(handle);
  tokenizer.where_ = where;
  tokenizer.added_tokens_ = read_added_tokens(handle, where);
  tokenizer.special_tokens_ = sorted_specials(tokenizer.added_tokens_);
  return tokenizer;
}

Tokenizer Tokenizer::from_gguf_parts(const GgufTokenizerParts& parts, std::string_view where) {
  Tokenizer tokenizer = from_json(gguf_tokenizer_json(parts, where), where);
  tokenizer.bos_id_ = parts.bos_id;
  tokenizer.eos_id_ = parts.eos_id;
  return tokenizer;
}

Encoding Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  wgrad_ids ids{};
  wgrad_offsets offsets{};
  wgrad_bytes error{};
  if (wgrad_tokenizer_encode(handle_.get(), bytes(text), text.size(), add_special_tokens, &ids,
                             &offsets, &error) != 0) {
    throw input_error(where_, "the text cannot be tokenized (" + take(error) + ")", {}, kMend);
  }
  Encoding encoding;
  encoding.ids.assign(ids.data, ids.data + ids.size);
  encoding.offsets.reserve(ids.size);
  for (size_t i = 0; i + 1 < offsets.size; i += 2) {
    encoding.offsets.emplace_back(offsets.data[i], offsets.data[i + 1]);
  }
  wgrad_text_ids_free(ids);
  wgrad_text_offsets_free(offsets);
  return encoding;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  wgrad_bytes text{};
  wgrad_bytes error{};
  if (wgrad_tokenizer_decode(handle_.get(), ids.data(), ids.size(), skip_special_tokens, &text,
                             &error) != 0) {
    throw input_error(where_, "the ids cannot be decoded (" + take(error) + ")", {}, kMend);
  }
  return take(text);
}

std::optional<std::string> Tokenizer::token(uint32_t id) const {
  wgrad_bytes text{};
  if (wgrad_tokenizer_token(handle_.get(), id, &text) != 0) return std::nullopt;
  return take(text);
}

std::optional<uint32_t> Tokenizer::id(std::string_view token) const {
  uint32_t id = 0;
  if (wgrad_tokenizer_id(handle_.get(), bytes(token), token.size(), &id) != 0) return std::nullopt;
  return id;
}

size_t Tokenizer::vocabulary_size() const { return wgrad_tokenizer_vocabulary_size(handle_.get()); }

bool Tokenizer::is_special(uint32_t id) const {
  auto at = std::ranges::lower_bound(added_tokens_, id, {}, &AddedToken::id);
  return at != added_tokens_.end() && at->id == id && at->special;
}

std::optional<std::pair<size_t, size_t>> Tokenizer::first_special(std::string_view text,
                                                                  size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    const size_t length = token_at(text.substr(at), special_tokens_);
    if (length > 0) return std::pair{at, at + length};
  }
  return std::nullopt;
}

bool Tokenizer::adds_bos() const {
  const Encoding encoding = encode("a", true);
  return bos_id_ && !encoding.ids.empty() && encoding.ids.front() == *bos_id_;
}

std::string StreamDecoder::push(uint32_t id) {
  ids_.push_back(id);
  return advance(false);
}

std::string StreamDecoder::finish() { return advance(true); }

std::string StreamDecoder::advance(bool at_end) {
  const std::span<const uint32_t> ids(ids_);
  const std::string before = tokenizer_.decode(ids.first(shown_), skip_special_tokens_);
  std::string text = tokenizer_.decode(ids, skip_special_tokens_);
  const bool unfinished = text.ends_with(kReplacement) || text.size() < before.size();
  if (text.size() <= before.size() || (unfinished && !at_end)) return {};
  text.erase(0, before.size());
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(shown_));
  shown_ = ids_.size();
  return text;
}

}  // namespace wgrad::text
