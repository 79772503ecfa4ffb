#include "text/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "text/files.h"
#include "text/pre_tokenizers.h"
#include "wgrad/error.h"

namespace wgrad::text {
namespace {

using nlohmann::json;

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581

/// The member, or null where the object has none.
const json& member(const json& object, const char* key) {
  static const json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

std::string type_of(const json& object) {
  const json& type = member(object, "type");
  return type.is_string() ? type.get<std::string>() : "none";
}

/// The parts of a Sequence, or the one part itself; none for null.
std::vector<json> parts_of(const json& object, const char* list) {
  if (object.is_null()) return {};
  if (type_of(object) != "Sequence") return {object};
  const json& parts = member(object, list);
  return {parts.begin(), parts.end()};
}

bool is_flag(const json& object, const char* key, bool value) {
  const json& flag = member(object, key);
  return flag.is_boolean() && flag.get<bool>() == value;
}

/// Whether a Split's words are its pattern's matches. Every pattern that is known here matches all
/// of a text, so that it is the same to take out what lies between the matches.
bool keeps_matches(const json& split) {
  const bool inverted = is_flag(split, "invert", true);
  return member(split, "behavior") == (inverted ? "Removed" : "Isolated");
}

/// A token that llama.cpp takes for a control token by its looks, whatever tokenizer.json says.
bool looks_special(std::string_view token) {
  return (token.starts_with("<|") && token.ends_with("|>")) || token == "<pad>" ||
         token == "<mask>" || token.starts_with("<unused");
}

class Exporter {
 public:
  Exporter(const std::filesystem::path& path, const TextAssets& assets, int64_t rows)
      : where_(path.string()), assets_(assets), rows_(rows) {
    file_ = json::parse(read_file(path), nullptr, false);
    model_ = &member(file_, "model");
  }

  GgufTokenizer make() {
    if (type_of(*model_) != "BPE") {
      refuse(fmt::format("the tokenizer's model is {}", type_of(*model_)), "BPE");
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& value = member(*model_, affix);
      if (!value.is_null() && value != "") refuse(fmt::format("\"{}\" is set", affix), "none");
    }
    fill_tokens();
    read_merges();
    if (is_flag(*model_, "byte_fallback", true)) {
      sentence_piece();
    } else {
      byte_level();
    }
    fill_special_tokens();
    if (assets_.chat_template) parts().chat_template = assets_.chat_template->source();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view seen, std::string_view expected) const {
    throw input_error(where_, seen, fmt::format("expected {}, as GGUF has it", expected),
                      "this tokenizer cannot be exported to GGUF");
  }

  GgufTokenizerParts& parts() { return result_.parts; }
  void note(std::string text) { result_.notes.push_back(std::move(text)); }

  void place(const std::string& token, uint32_t id, int32_t type) {
    parts().tokens[id] = token;
    parts().types[id] = type;
  }

  /// Every token under its id; ids that have none are unused ones.
  void fill_tokens() {
    const json& vocabulary = member(*model_, "vocab");
    const auto rows = static_cast<size_t>(rows_);
    const auto in_range = [&](uint64_t id, const std::string& token) {
      if (id < rows) return static_cast<uint32_t>(id);
      refuse(fmt::format("the token \"{}\" has the id {}", token, id),
             fmt::format("ids below the model's {} embeddings", rows));
    };
    for (size_t id = 0; id < rows; ++id) {
      parts().tokens.push_back(fmt::format("[PAD{}]", id));
      parts().types.push_back(kUnused);
    }
    for (const auto& [token, id] : vocabulary.items()) {
      place(token, in_range(id.get<uint64_t>(), token), kNormal);
    }
    bool stripped = false;
    for (const json& added : member(file_, "added_tokens")) {
      const auto token = added.at("content").get<std::string>();
      const bool special = is_flag(added, "special", true) || looks_special(token);
      place(token, in_range(added.at("id").get<uint64_t>(), token),
            special ? kControl : kUserDefined);
      for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
        stripped = stripped || is_flag(added, flag, true);
      }
    }
    if (stripped) {
      note(
          "added tokens that take spaces beside them (lstrip, rstrip, single_word) do not in GGUF");
    }
  }

  /// "a b", or ["a", "b"]; a space within a part is written as its byte-level stand-in.
  void read_merges() {
    for (const json& merge : member(*model_, "merges")) {
      if (merge.is_string()) {
        parts().merges.push_back(merge.get<std::string>());
        continue;
      }
      std::string text;
      for (const json& part : merge) {
        if (!text.empty()) text += ' ';
        for (const char c : part.get<std::string>()) {
          if (c == ' ') {
            text += "\xC4\xA0";  // U+0120
          } else {
            text += c;
          }
        }
      }
      parts().merges.push_back(std::move(text));
    }
  }

  // Byte-level BPE ("gpt2")

  void byte_level() {
    parts().model = "gpt2";
    PreTokenizer wanted{.name = {},
                        .pattern = kGpt2Pattern,
                        .single_digits = false,
                        .ignore_merges = is_flag(*model_, "ignore_merges", true),
                        .add_bos = false,
                        .nfc = composes()};
    pattern_ = std::string(kGpt2Pattern);
    read_splits(wanted);
    wanted.pattern = pattern_;
    const auto same = [&](const PreTokenizer& known, bool nfc) {
      return known.pattern == wanted.pattern && known.single_digits == wanted.single_digits &&
             known.ignore_merges == wanted.ignore_merges && known.nfc == nfc;
    };
    for (const bool nfc : {wanted.nfc, !wanted.nfc}) {
      for (const PreTokenizer& known : pre_tokenizers()) {
        if (!same(known, nfc)) continue;
        parts().pre = known.name;
        if (wanted.nfc) {
          note("llama.cpp takes characters as they are: this tokenizer composes them first (NFC)");
        } else if (nfc) {
          note("a reader of the file may compose characters (NFC), which this tokenizer does not");
        }
        return;
      }
    }
    refuse(fmt::format("the pre-tokenizer splits by \"{}\"{}{}", wanted.pattern,
                       wanted.single_digits ? " after single digits" : "",
                       wanted.ignore_merges ? ", whole words first" : ""),
           "one that llama.cpp knows");
  }

  bool composes() const {
    bool nfc = false;
    for (const json& part : parts_of(member(file_, "normalizer"), "normalizers")) {
      if (type_of(part) != "NFC")
        refuse(fmt::format("a normalizer {}", type_of(part)), "NFC at most");
      nfc = true;
    }
    return nfc;
  }

  void read_splits(PreTokenizer& wanted) {
    bool bytes = false;
    bool split = false;
    for (const json& part : parts_of(member(file_, "pre_tokenizer"), "pretokenizers")) {
      const std::string type = type_of(part);
      const json& pattern = member(member(part, "pattern"), "Regex");
      if (type == "Digits" && !split && is_flag(part, "individual_digits", true)) {
        wanted.single_digits = true;
      } else if (type == "Split" && !split && pattern.is_string() && keeps_matches(part)) {
        split = true;
        pattern_ = pattern.get<std::string>();
      } else if (type == "ByteLevel" && is_flag(part, "add_prefix_space", false) &&
                 is_flag(part, "use_regex", !split)) {
        bytes = true;
      } else {
        refuse(fmt::format("a pre-tokenizer {} of this kind or place", type),
               "single digits, one pattern, bytes");
      }
    }
    if (!bytes) refuse("no byte-level pre-tokenizer", "one");
  }

  // SentencePiece's BPE ("llama")

  void sentence_piece() {
    parts().model = "llama";
    parts().pre = "default";
    parts().add_space_prefix = adds_prefix();
    for (size_t id = 0; id < parts().tokens.size(); ++id) {
      const std::string& token = parts().tokens[id];
      int32_t& type = parts().types[id];
      if (type == kNormal && token.size() == 6 && token.starts_with("<0x") && token[5] == '>') {
        type = kByte;
      }
    }
    if (const json& unknown = member(*model_, "unk_token"); unknown.is_string()) {
      parts().unknown_id = assets_.tokenizer.id(unknown.get<std::string>());
      if (parts().unknown_id) parts().types[*parts().unknown_id] = kUnknown;
    }
    scores();
  }

  /// Readers match such tokens against the text itself, where spaces are spaces. A token that is
  /// matched so here too finds none there: only merges make it, as any other piece.
  void place_word_starts() {
    for (const json& added : member(file_, "added_tokens")) {
      const auto id = added.at("id").get<size_t>();
      std::string& token = parts().tokens[id];
      if (parts().types[id] != kUserDefined || token.find(kWordStart) == std::string::npos)
        continue;
      if (is_flag(added, "normalized", false) && score_.contains(token)) {
        parts().types[id] = kNormal;
        continue;
      }
      for (size_t at = token.find(kWordStart); at != std::string::npos;
           at = token.find(kWordStart)) {
        token.replace(at, kWordStart.size(), " ");
      }
    }
  }

  /// Whether a text begins with a space of its own; refuses whatever else is done to it.
  bool adds_prefix() {
    bool prefix = false;
    bool spaces = false;
    for (const json& part : parts_of(member(file_, "normalizer"), "normalizers")) {
      const std::string type = type_of(part);
      if (type == "Prepend" && member(part, "prepend") == kWordStart) {
        prefix = true;
      } else if (type == "Replace" && member(member(part, "pattern"), "String") == " " &&
                 member(part, "content") == kWordStart) {
        spaces = true;
      } else {
        refuse(fmt::format("a normalizer {}", type), "spaces as U+2581 alone");
      }
    }
    for (const json& part : parts_of(member(file_, "pre_tokenizer"), "pretokenizers")) {
      const std::string type = type_of(part);
      // After the normalizer no space is left to split at.
      if (type == "Split" && spaces && member(member(part, "pattern"), "String") == " ") continue;
      const json& scheme = member(part, "prepend_scheme");
      if (type != "Metaspace" || !is_flag(part, "split", false) || !scheme.is_string()) {
        refuse(fmt::format("a pre-tokenizer {}", type), "none, or an unsplit Metaspace");
      }
      spaces = true;
      prefix = scheme != "never";
      if (scheme == "first") note("a space is also put after special tokens within a text");
    }
    if (!spaces) refuse("spaces that stay as they are", "spaces as U+2581");
    return prefix;
  }

  /// SentencePiece joins by the score of the result: the earlier merges make it, the better.
  void scores() {
    std::unordered_set<std::string> added;
    for (const json& token : member(file_, "added_tokens")) {
      added.insert(token.at("content").get<std::string>());
    }
    std::set<std::pair<std::string, std::string>> known;
    std::string last;
    for (const std::string& merge : parts().merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos) refuse(fmt::format("the merge \"{}\"", merge), "two pieces");
      const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
      known.emplace(left, right);
      std::string piece = left + right;
      if (piece == last) continue;
      const bool first = score_.emplace(piece, -static_cast<float>(score_.size())).second;
      // Runs of one character that are added tokens too: of these the longest comes first.
      if (!first && !added.contains(piece)) {
        refuse(fmt::format("the merges that make \"{}\" stand apart", piece),
               "merges in the order of scores");
      }
      last = std::move(piece);
    }
    place_word_starts();
    const float least = -static_cast<float>(score_.size());
    for (const std::string& token : parts().tokens) {
      const auto found = score_.find(token);
      parts().scores.push_back(found == score_.end() ? least : found->second);
    }
    count_new_joins(known);
  }

  /// Readers join any two pieces whose result is a piece.
  void count_new_joins(const std::set<std::pair<std::string, std::string>>& known) {
    std::unordered_set<std::string_view> pieces;
    for (size_t id = 0; id < parts().tokens.size(); ++id) {
      if (parts().types[id] == kNormal) pieces.insert(parts().tokens[id]);
    }
    size_t joins = 0;
    for (const std::string_view piece : pieces) {
      for (size_t at = 1; at < piece.size(); ++at) {
        const std::string_view left = piece.substr(0, at), right = piece.substr(at);
        if (!pieces.contains(left) || !pieces.contains(right)) continue;
        joins += known.contains({std::string(left), std::string(right)}) ? 0 : 1;
      }
    }
    if (joins > 0) {
      note(
          fmt::format("llama.cpp joins {} pairs of pieces that this tokenizer never joins", joins));
    }
  }

  // What both have

  void fill_special_tokens() {
    GgufTokenizerParts& p = parts();
    p.bos_id = assets_.bos_id;
    p.eos_id = assets_.eos_id;
    p.padding_id = assets_.pad_id;
    for (const uint32_t id : assets_.stop_ids) {
      if (id == p.eos_id || id >= p.tokens.size()) continue;
      if (!p.eot_id) {
        p.eot_id = id;
      } else {
        note(fmt::format("the stop token \"{}\" has no key of its own", p.tokens[id]));
      }
    }
    if (!p.unknown_id) {
      if (const json& unknown = member(*model_, "unk_token"); unknown.is_string()) {
        p.unknown_id = assets_.tokenizer.id(unknown.get<std::string>());
      }
    }
    read_added_ends();
  }

  /// What the tokenizer puts around a text, as it does it.
  void read_added_ends() {
    const auto with = assets_.tokenizer.encode("a", true).ids;
    std::vector<uint32_t> expected = assets_.tokenizer.encode("a", false).ids;
    const bool begins = assets_.bos_id && !with.empty() && with.front() == *assets_.bos_id;
    const bool ends = assets_.eos_id && with.size() > 1 && with.back() == *assets_.eos_id;
    if (begins) expected.insert(expected.begin(), *assets_.bos_id);
    if (ends) expected.push_back(*assets_.eos_id);
    if (with != expected) {
      refuse("the post-processor adds other tokens than BOS before and EOS after a text", "these");
    }
    parts().add_bos = begins;
    parts().add_eos = ends;
  }

  std::string where_;
  const TextAssets& assets_;
  int64_t rows_;
  json file_;
  const json* model_ = nullptr;
  std::string pattern_;
  std::unordered_map<std::string, float> score_;  ///< of each piece that merges make
  GgufTokenizer result_;
};

}  // namespace

GgufTokenizer gguf_tokenizer_of_folder(const std::filesystem::path& folder,
                                       const TextAssets& assets, int64_t rows) {
  const std::filesystem::path path = folder / "tokenizer.json";
  try {
    return Exporter(path, assets, rows).make();
  } catch (const json::exception&) {
    throw input_error(path.string(), "the file is not as the tokenizers library writes it", {},
                      "save it anew with transformers' AutoTokenizer.save_pretrained");
  }
}

}  // namespace wgrad::text
