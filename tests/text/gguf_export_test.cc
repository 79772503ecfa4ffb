#include "text/gguf_export.h"

#include <gmock/gmock.h>

#include "text/text_test_support.h"

namespace wgrad::text {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A copy of a golden tokenizer that a test can change.
class ExportedTokenizer : public testing::Test {
 protected:
  void copy(const std::string& style) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      folder_.write(name, read_file(golden(style + "/" + name)));
    }
  }
  void change(const nlohmann::json& patch) {
    nlohmann::json file = nlohmann::json::parse(read_file(folder_.path() / "tokenizer.json"));
    file.merge_patch(patch);
    folder_.write("tokenizer.json", file.dump());
  }
  GgufTokenizer exported(int64_t rows = 700) {
    const TextAssets assets = load_from_folder(folder_.path());
    return gguf_tokenizer_of_folder(folder_.path(), assets, rows);
  }
  std::string refusal(int64_t rows = 700) {
    return input_error_of([&] { exported(rows); });
  }

  TemporaryFolder folder_;
};

class ExportedGoldens : public ExportedTokenizer,
                        public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(, ExportedGoldens,
                         testing::Values("llama3_style", "qwen2_style", "smollm_style",
                                         "llama2_style"));

TEST_P(ExportedGoldens, TokenizesAsBefore) {
  copy(GetParam());
  const GgufTokenizer exported = this->exported();
  const Tokenizer tokenizer = Tokenizer::from_gguf_parts(exported.parts, "x.gguf");
  for (const auto& row : golden_json(std::string(GetParam()) + "/encodings.json")) {
    const Encoding encoding =
        tokenizer.encode(row["text"].get<std::string>(), row["add_special_tokens"].get<bool>());
    EXPECT_EQ(encoding.ids, row["ids"].get<std::vector<uint32_t>>()) << row["text"];
    EXPECT_EQ(tokenizer.decode(encoding.ids, true), row["skipped"].get<std::string>());
  }
}

TEST_P(ExportedGoldens, HasTheKeysThatTheConverterWrites) {
  copy(GetParam());
  const GgufTokenizerParts parts = exported().parts;
  const GgufTokenizerParts expected = golden_parts(GetParam());
  EXPECT_EQ(parts.model, expected.model);
  EXPECT_EQ(parts.pre, expected.pre);
  EXPECT_EQ(parts.merges, expected.merges);
  EXPECT_EQ(parts.bos_id, expected.bos_id);
  EXPECT_EQ(parts.eos_id, expected.eos_id);
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const bool known = id < expected.tokens.size();
    EXPECT_EQ(parts.tokens[id], known ? expected.tokens[id] : "[PAD" + std::to_string(id) + "]");
    EXPECT_EQ(parts.types[id], known ? expected.types[id] : kUnused) << parts.tokens[id];
  }
}

TEST_F(ExportedTokenizer, ScoresPiecesByTheirMerges) {
  copy("llama2_style");
  const GgufTokenizer result = exported();
  float last = 1;
  for (const std::string& merge : result.parts.merges) {
    std::string piece = merge;
    piece.erase(piece.find(' ', 1), 1);
    const auto at = std::ranges::find(result.parts.tokens, piece) - result.parts.tokens.begin();
    EXPECT_LT(result.parts.scores[static_cast<size_t>(at)], last);
    last = result.parts.scores[static_cast<size_t>(at)];
  }
  // This tokenizer was trained without SentencePiece: llama.cpp also joins "e" + "re".
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_THAT(result.notes[0], HasSubstr("llama.cpp joins 2 pairs"));
}

TEST_F(ExportedTokenizer, MarksTokensThatLookSpecial) {
  copy("smollm_style");
  nlohmann::json file = nlohmann::json::parse(read_file(folder_.path() / "tokenizer.json"));
  for (auto& token : file["added_tokens"]) token["special"] = false;
  file["added_tokens"].push_back({{"id", 650},
                                  {"content", "<tool>"},
                                  {"single_word", false},
                                  {"lstrip", true},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", false}});
  folder_.write("tokenizer.json", file.dump());
  const GgufTokenizer result = exported();
  EXPECT_EQ(result.parts.types[578], kControl);
  EXPECT_EQ(result.parts.types[650], kUserDefined);
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_THAT(result.notes[0], HasSubstr("lstrip"));
}

/// A tokenizer as Gemma's: pieces of several spaces or form feeds that are added tokens too, which
/// stand as they are and not as spaces, and whose merges take turns.
class RunsOfSpaces : public ExportedTokenizer {
 protected:
  RunsOfSpaces() {
    copy("llama2_style");
    nlohmann::json file = nlohmann::json::parse(read_file(folder_.path() / "tokenizer.json"));
    nlohmann::json& model = file["model"];
    nlohmann::json merges = nlohmann::json::array();
    const std::vector<std::string> units = {"\xE2\x96\x81", "\f"};
    model["vocab"]["\f"] = 600;
    size_t next = 601;
    for (const auto& [left, right] : {std::pair(2, 1), std::pair(1, 2), std::pair(1, 1)}) {
      for (const std::string& unit : units) {
        const std::string a = left == 2 ? unit + unit : unit, b = right == 2 ? unit + unit : unit;
        merges.push_back({a, b});
        if (right == 2) continue;
        if (!model["vocab"].contains(a + b)) model["vocab"][a + b] = next++;
        file["added_tokens"].push_back({{"id", model["vocab"][a + b]},
                                        {"content", a + b},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", false}});
      }
    }
    for (const auto& merge : model["merges"]) {
      if (merge != nlohmann::json({units[0], units[0]})) merges.push_back(merge);
    }
    model["merges"] = merges;
    folder_.write("tokenizer.json", file.dump());
  }
};

TEST_F(RunsOfSpaces, AreSplitAsBefore) {
  const GgufTokenizerParts parts = exported().parts;
  const auto id_of = [&](std::string_view token) {
    return static_cast<size_t>(std::ranges::find(parts.tokens, token) - parts.tokens.begin());
  };
  const size_t spaces = id_of("\xE2\x96\x81\xE2\x96\x81"), feeds = id_of("\f\f");
  // Spaces become this only by merges; a reader would find a token of its own in the text.
  EXPECT_EQ(parts.types.at(spaces), kNormal);
  EXPECT_EQ(parts.types.at(feeds), kUserDefined);
  EXPECT_GT(parts.scores.at(id_of("\f\f\f")), parts.scores.at(feeds));
  const Tokenizer tokenizer = Tokenizer::from_gguf_parts(parts, "x.gguf");
  const TextAssets assets = load_from_folder(folder_.path());
  for (const char* text : {"a  b", "a   b", "a     b\f\f\f\fc", "      "}) {
    EXPECT_EQ(tokenizer.encode(text, true).ids, assets.tokenizer.encode(text, true).ids) << text;
  }
}

TEST_F(RunsOfSpaces, WhoseMergesTakeTurnsMustBeAddedTokens) {
  change({{"added_tokens", nlohmann::json::array()}});
  EXPECT_THAT(refusal(), HasSubstr("stand apart"));
}

TEST_F(ExportedTokenizer, MayTakeOutWhatLiesBetweenAPatternsMatches) {
  copy("llama3_style");
  nlohmann::json file = nlohmann::json::parse(read_file(folder_.path() / "tokenizer.json"));
  nlohmann::json& split = file["pre_tokenizer"]["pretokenizers"][0];
  ASSERT_EQ(split["type"], "Split");
  split["behavior"] = "Removed";
  split["invert"] = true;
  folder_.write("tokenizer.json", file.dump());
  EXPECT_EQ(exported().parts.pre, "llama-bpe");
  split["invert"] = false;
  folder_.write("tokenizer.json", file.dump());
  EXPECT_THAT(refusal(), HasSubstr("a pre-tokenizer Split"));
}

TEST_F(ExportedTokenizer, SaysThatCharactersAreNotComposed) {
  copy("qwen2_style");
  const GgufTokenizer result = exported();
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_THAT(result.notes[0], HasSubstr("this tokenizer composes them first"));
}

TEST_F(ExportedTokenizer, NamesAnotherStopToken) {
  copy("smollm_style");
  folder_.write("generation_config.json", R"({"eos_token_id": [579, 577]})");
  const GgufTokenizer result = exported();
  EXPECT_EQ(result.parts.eos_id, 579u);
  EXPECT_EQ(result.parts.eot_id, 577u);
  EXPECT_THAT(result.notes, IsEmpty());
}

TEST_F(ExportedTokenizer, KeepsTheTemplate) {
  copy("smollm_style");
  folder_.write("chat_template.jinja", "{{ messages }}");
  EXPECT_EQ(exported().parts.chat_template, "{{ messages }}");
}

TEST_F(ExportedTokenizer, RefusesWhatGgufHasNoFormFor) {
  copy("smollm_style");
  EXPECT_THAT(refusal(100), HasSubstr("ids below the model's 100 embeddings"));
  change({{"pre_tokenizer", {{"pretokenizers", {{{"type", "Whitespace"}}}}}}});
  EXPECT_THAT(refusal(), HasSubstr("a pre-tokenizer Whitespace"));
  copy("llama3_style");
  change({{"model", {{"ignore_merges", false}}}, {"normalizer", {{"type", "NFKC"}}}});
  EXPECT_THAT(refusal(), HasSubstr("a normalizer NFKC"));
  change({{"normalizer", nullptr},
          {"pre_tokenizer",
           {{"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", "\\w+"}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              {{"type", "ByteLevel"},
               {"add_prefix_space", false},
               {"trim_offsets", false},
               {"use_regex", false}}}}}}});
  EXPECT_THAT(refusal(), HasSubstr("the pre-tokenizer splits by \"\\w+\""));
}

TEST_F(ExportedTokenizer, RefusesAModelThatIsNoBpe) {
  folder_.write("tokenizer.json", R"({"version":"1.0","truncation":null,"padding":null,
    "added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},
    "post_processor":null,"decoder":null,
    "model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}})");
  EXPECT_THAT(refusal(), HasSubstr("the tokenizer's model is WordLevel; expected BPE"));
}

}  // namespace
}  // namespace wgrad::text
