#include "text/gguf_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <unordered_map>

#include "text/pre_tokenizers.h"
#include "wgrad/error.h"

namespace wgrad::text {
namespace {

using nlohmann::json;

constexpr size_t kLongestPiece = 1024;

json split(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

json sequence(std::string_view member, json parts) {
  return {{"type", "Sequence"}, {member, std::move(parts)}};
}

json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

const PreTokenizer& find_pre_tokenizer(const std::string& name, std::string_view where) {
  const auto known = pre_tokenizers();
  const auto found = std::ranges::find(known, name, &PreTokenizer::name);
  if (found != known.end()) return *found;
  std::vector<std::string_view> names;
  for (const PreTokenizer& one : known) names.push_back(one.name);
  throw input_error(where, fmt::format("tokenizer.ggml.pre is \"{}\"", name),
                    fmt::format("expected one of {}", fmt::join(names, ", ")),
                    "use the model's Hugging Face folder with its tokenizer.json");
}

void check(const GgufTokenizerParts& parts, std::string_view where) {
  const size_t count = parts.tokens.size();
  if (count == 0 || count > UINT32_MAX) {
    throw input_error(where, fmt::format("tokenizer.ggml.tokens has {} entries", count),
                      "expected a vocabulary", "download the file again");
  }
  const auto same_length = [&](std::string_view key, size_t size) {
    if (size == count || size == 0) return;
    throw input_error(where, fmt::format("{} has {} entries", key, size),
                      fmt::format("expected {}, one a token", count), "download the file again");
  };
  same_length("tokenizer.ggml.scores", parts.scores.size());
  same_length("tokenizer.ggml.token_type", parts.types.size());
  const auto in_range = [&](std::string_view key, std::optional<uint32_t> id) {
    if (!id || *id < count) return;
    throw input_error(where, fmt::format("tokenizer.ggml.{}_token_id is {}", key, *id),
                      fmt::format("expected an id below {}", count), "download the file again");
  };
  in_range("bos", parts.bos_id);
  in_range("eos", parts.eos_id);
  in_range("eot", parts.eot_id);
  in_range("unknown", parts.unknown_id);
  in_range("padding", parts.padding_id);
}

int32_t type_of(const GgufTokenizerParts& parts, size_t i) {
  return parts.types.empty() ? kNormal : parts.types[i];
}

json added_tokens(const GgufTokenizerParts& parts) {
  json list = json::array();
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    const int32_t type = type_of(parts, i);
    const bool special = type == kControl || type == kUnknown;
    if ((!special && type != kUserDefined) || parts.tokens[i].empty()) continue;
    list.push_back({{"id", i},
                    {"content", parts.tokens[i]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", special}});
  }
  return list;
}

json vocabulary(const GgufTokenizerParts& parts, std::string_view where) {
  json vocabulary = json::object();
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    const auto [at, is_new] = vocabulary.emplace(parts.tokens[i], i);
    if (!is_new) {
      throw input_error(where,
                        fmt::format("tokenizer.ggml.tokens holds \"{}\" twice, as {} and {}",
                                    parts.tokens[i], at->get<size_t>(), i),
                        "expected every token once", "download the file again");
    }
  }
  return vocabulary;
}

json listed_merges(const GgufTokenizerParts& parts, std::string_view where) {
  json merges = json::array();
  for (const std::string& merge : parts.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      throw input_error(
          where, fmt::format("tokenizer.ggml.merges, entry {}: \"{}\"", merges.size(), merge),
          "expected two tokens with a space between them", "download the file again");
    }
    merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return merges;
}

struct Merge {
  std::string_view left;
  std::string_view right;
  float score;
  size_t left_length;  // in characters
  size_t right_length;
  uint32_t left_id;
  uint32_t right_id;
};

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, starts_character));
}

/// SentencePiece joins the pair whose result has the best score, so every split of a piece into
/// two pieces is a merge with that piece's score. Ties are ordered as transformers orders them.
json merges_from_scores(const GgufTokenizerParts& parts, std::string_view where) {
  if (parts.scores.empty()) {
    throw input_error(where, "neither tokenizer.ggml.merges nor tokenizer.ggml.scores is there",
                      "expected one of them", "download the file again");
  }
  std::unordered_map<std::string_view, uint32_t> ids;
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    if (type_of(parts, i) == kNormal) ids.emplace(parts.tokens[i], static_cast<uint32_t>(i));
  }
  std::vector<Merge> merges;
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    const std::string_view piece = parts.tokens[i];
    if (type_of(parts, i) != kNormal) continue;
    if (piece.size() > kLongestPiece) {
      throw input_error(where, fmt::format("token {} is {} bytes long", i, piece.size()),
                        fmt::format("expected at most {}", kLongestPiece),
                        "download the file again");
    }
    const size_t first = merges.size();
    for (size_t at = 1; at < piece.size(); ++at) {
      if (!starts_character(piece[at])) continue;
      const auto left = ids.find(piece.substr(0, at));
      const auto right = ids.find(piece.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({left->first, right->first, parts.scores[i], characters(left->first),
                        characters(right->first), left->second, right->second});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
              });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  json list = json::array();
  for (const Merge& merge : merges) list.push_back({merge.left, merge.right});
  return list;
}

json post_processor(const GgufTokenizerParts& parts, bool bos_by_default) {
  json single = json::array();
  json special = json::object();
  const auto add = [&](std::optional<uint32_t> id) {
    const std::string& token = parts.tokens[*id];
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  };
  if (parts.bos_id && parts.add_bos.value_or(bos_by_default)) add(parts.bos_id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (parts.eos_id && parts.add_eos.value_or(false)) add(parts.eos_id);
  json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

void fill_byte_level(const GgufTokenizerParts& parts, std::string_view where, json& out) {
  const PreTokenizer& pre = find_pre_tokenizer(parts.pre, where);
  json splits = json::array();
  if (pre.single_digits) splits.push_back({{"type", "Digits"}, {"individual_digits", true}});
  splits.push_back(split(pre.pattern));
  splits.push_back(byte_level());
  out["normalizer"] = pre.nfc ? json{{"type", "NFC"}} : json(nullptr);
  out["pre_tokenizer"] = sequence("pretokenizers", std::move(splits));
  out["post_processor"] = post_processor(parts, pre.add_bos);
  out["decoder"] = byte_level();
  out["model"] = {{"type", "BPE"},
                  {"vocab", vocabulary(parts, where)},
                  {"merges", listed_merges(parts, where)},
                  {"ignore_merges", pre.ignore_merges}};
}

void fill_sentence_piece(const GgufTokenizerParts& parts, std::string_view where, json& out) {
  static constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581
  const bool prefix = parts.add_space_prefix.value_or(true);
  json normalizers = json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  json decoders = json::array();
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  out["normalizer"] = sequence("normalizers", std::move(normalizers));
  out["pre_tokenizer"] = nullptr;
  out["post_processor"] = post_processor(parts, true);
  out["decoder"] = sequence("decoders", std::move(decoders));
  json unknown = nullptr;
  if (parts.unknown_id) unknown = parts.tokens[*parts.unknown_id];
  out["model"] = {{"type", "BPE"},
                  {"vocab", vocabulary(parts, where)},
                  {"merges", parts.merges.empty() ? merges_from_scores(parts, where)
                                                  : listed_merges(parts, where)},
                  {"unk_token", std::move(unknown)},
                  {"fuse_unk", true},
                  {"byte_fallback", true}};
}

}  // namespace

std::string gguf_tokenizer_json(const GgufTokenizerParts& parts, std::string_view where) {
  check(parts, where);
  json out = {{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added_tokens(parts)}};
  if (parts.model == "gpt2") {
    fill_byte_level(parts, where, out);
  } else if (parts.model == "llama") {
    fill_sentence_piece(parts, where, out);
  } else {
    throw input_error(where, fmt::format("tokenizer.ggml.model is \"{}\"", parts.model),
                      "expected gpt2 or llama",
                      "use the model's Hugging Face folder with its tokenizer.json");
  }
  try {
    return out.dump();
  } catch (const json::type_error&) {
    throw input_error(where, "the tokenizer's tokens or merges are not UTF-8", {},
                      "download the file again");
  }
}

}  // namespace wgrad::text
