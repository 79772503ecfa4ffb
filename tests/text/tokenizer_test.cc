#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "text/text_test_support.h"

namespace wgrad::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TokenizerGoldens : public testing::TestWithParam<const char*> {
 protected:
  static Tokenizer from_json() {
    return Tokenizer::from_json_file(golden(std::string(GetParam()) + "/tokenizer.json"));
  }
  static Tokenizer from_gguf() {
    GgufTokenizerParts parts = golden_parts(GetParam());
    return Tokenizer::from_gguf_parts(parts, "model.gguf");
  }
  static void expect_goldens(const Tokenizer& tokenizer) {
    for (const auto& row : golden_json(std::string(GetParam()) + "/encodings.json")) {
      const auto text = row["text"].get<std::string>();
      const Encoding encoding = tokenizer.encode(text, row["add_special_tokens"].get<bool>());
      const auto ids = row["ids"].get<std::vector<uint32_t>>();
      EXPECT_EQ(encoding.ids, ids) << row;
      EXPECT_EQ(nlohmann::ordered_json(encoding.offsets), row["offsets"]) << row["text"];
      EXPECT_EQ(tokenizer.decode(ids, false), row["decoded"].get<std::string>());
      EXPECT_EQ(tokenizer.decode(ids, true), row["skipped"].get<std::string>());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, TokenizerGoldens,
                         testing::Values("llama3_style", "qwen2_style", "smollm_style",
                                         "llama2_style"));

TEST_P(TokenizerGoldens, GivesTheIdsAndOffsetsOfTransformers) { expect_goldens(from_json()); }

TEST_P(TokenizerGoldens, GivesTheSameFromTheKeysOfAGgufFile) { expect_goldens(from_gguf()); }

TEST_P(TokenizerGoldens, StreamsTheDecodedTextInWholeCharacters) {
  const Tokenizer tokenizer = from_json();
  for (const auto& row : golden_json(std::string(GetParam()) + "/encodings.json")) {
    StreamDecoder stream(tokenizer, true);
    std::string text;
    for (const uint32_t id : row["ids"].get<std::vector<uint32_t>>()) {
      const std::string piece = stream.push(id);
      EXPECT_NO_THROW(nlohmann::json(piece).dump()) << "a piece that is not UTF-8";
      text += piece;
    }
    text += stream.finish();
    EXPECT_EQ(text, row["skipped"].get<std::string>());
  }
}

TEST_P(TokenizerGoldens, NamesEveryTokenAndFindsItAgain) {
  const Tokenizer tokenizer = from_json();
  for (uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto token = tokenizer.token(id);
    ASSERT_TRUE(token) << id;
    EXPECT_EQ(tokenizer.id(*token), id);
  }
  EXPECT_FALSE(tokenizer.token(static_cast<uint32_t>(tokenizer.vocabulary_size())));
  EXPECT_FALSE(tokenizer.id("no such token"));
}

TEST_P(TokenizerGoldens, EncodesTheSameFromSeveralThreads) {
  const Tokenizer tokenizer = from_json();
  const std::string text = "In 1984 there were 365 days, and \xF0\x9F\x98\x80 too. <|im_end|>";
  const std::vector<uint32_t> expected = tokenizer.encode(text, true).ids;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) count += tokenizer.encode(text, true).ids != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Tokenizer, SplitsNumbersIntoDigitsWhereTheFileSaysSmollm) {
  const Tokenizer tokenizer = Tokenizer::from_gguf_parts(golden_parts("smollm_style"), "f");
  std::vector<std::string> tokens;
  for (uint32_t id : tokenizer.encode("1984", true).ids) tokens.push_back(*tokenizer.token(id));
  EXPECT_THAT(tokens, testing::ElementsAre("1", "9", "8", "4"));
}

TEST(Tokenizer, FindsTheMergesThatScoresImply) {
  GgufTokenizerParts parts = golden_parts("llama2_style");
  const Tokenizer listed = Tokenizer::from_gguf_parts(parts, "f");
  parts.merges.clear();
  for (size_t i = 0; i < parts.tokens.size(); ++i) parts.scores.push_back(-static_cast<float>(i));
  const Tokenizer derived = Tokenizer::from_gguf_parts(parts, "f");
  for (const auto& row : golden_json("llama2_style/encodings.json")) {
    const auto text = row["text"].get<std::string>();
    EXPECT_EQ(derived.encode(text, false).ids, listed.encode(text, false).ids) << text;
  }
}

TEST(Tokenizer, AddsBosAndEosAsTheGgufKeysSay) {
  GgufTokenizerParts parts = golden_parts("llama3_style");
  const auto ids = [&] { return Tokenizer::from_gguf_parts(parts, "f").encode("a", true).ids; };
  const uint32_t a = Tokenizer::from_gguf_parts(parts, "f").id("a").value();
  EXPECT_EQ(ids(), (std::vector{*parts.bos_id, a}));  // the default of llama-bpe
  parts.add_eos = true;
  EXPECT_EQ(ids(), (std::vector{*parts.bos_id, a, *parts.eos_id}));
  parts.add_bos = false;
  EXPECT_EQ(ids(), (std::vector{a, *parts.eos_id}));
}

TEST(Tokenizer, TellsSpecialFromOtherAddedTokens) {
  const Tokenizer tokenizer = Tokenizer::from_json_file(golden("qwen2_style/tokenizer.json"));
  EXPECT_TRUE(tokenizer.is_special(tokenizer.id("<|im_end|>").value()));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.id("<think>").value()));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.id("a").value()));
  EXPECT_EQ(tokenizer.added_tokens().size(), 5u);
}

Tokenizer with_specials(const std::vector<std::string>& contents) {
  auto json = golden_json("qwen2_style/tokenizer.json");
  json["added_tokens"] = nlohmann::ordered_json::array();
  for (const std::string& content : contents) {
    json["added_tokens"].push_back({{"id", 1000 + json["added_tokens"].size()},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  return Tokenizer::from_json(json.dump(), "tokenizer.json");
}

TEST(Tokenizer, FindsTheFirstSpecialTokenAndTheLongestThere) {
  const std::vector<std::string> specials = {"ab", "abcab", "abca", "cc", "bbbb", "\u00e9c", "d"};
  const Tokenizer tokenizer = with_specials(specials);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    while (text.size() < 12) text += std::vector{"a", "b", "c", "\u00e9"}[random() % 4];
    const size_t from = random() % 4;
    std::optional<std::pair<size_t, size_t>> expected;
    for (const std::string& token : specials) {
      const size_t at = text.find(token, from);
      if (at == std::string::npos) continue;
      const std::pair place{at, at + token.size()};
      if (!expected || at < expected->first ||
          (at == expected->first && place.second > expected->second)) {
        expected = place;
      }
    }
    EXPECT_EQ(tokenizer.first_special(text, from), expected) << text << " from " << from;
  }
}

TEST(Tokenizer, ManySpecialTokensCostALongTextLittle) {
  std::vector<std::string> specials;
  for (int i = 0; i < 20000; ++i) specials.push_back("<t" + std::to_string(i) + ">");
  const Tokenizer tokenizer = with_specials(specials);
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "<t";
  EXPECT_EQ(tokenizer.first_special(text, 0), std::nullopt);
  EXPECT_EQ(tokenizer.first_special(text + "7>", 0), (std::pair{text.size() - 2, text.size() + 2}));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = Tokenizer::from_json_file(golden("qwen2_style/tokenizer.json"));
  const std::string text = input_error_of([&] { tokenizer.encode("ab\xFF", false); });
  EXPECT_THAT(text, HasSubstr("not UTF-8 at byte 2"));
}

TEST(Tokenizer, LeavesOutIdsBeyondTheVocabulary) {
  const Tokenizer tokenizer = Tokenizer::from_json_file(golden("qwen2_style/tokenizer.json"));
  const uint32_t a = tokenizer.id("a").value();
  EXPECT_EQ(tokenizer.decode(std::vector{a, UINT32_MAX, a}, false), "aa");
}

TEST(DamagedTokenizer, IsRefusedWithItsNameAndWhatToDo) {
  const std::string json = read_file(golden("llama3_style/tokenizer.json"));
  for (const std::string& damaged :
       {std::string(), std::string("{}"), std::string("[1,2]"), std::string("\xFF\xFE"),
        json.substr(0, json.size() / 2), std::string(R"({"model":{"type":"Nonsense"}})"),
        std::string(R"({"version":"1.0","model":{"type":"BPE","vocab":{},"merges":["a b"]}})"),
        std::string(100000, '[')}) {
    const std::string text =
        input_error_of([&] { Tokenizer::from_json(damaged, "m/tokenizer.json"); });
    EXPECT_THAT(text, AllOf(testing::StartsWith("m/tokenizer.json: "), HasSubstr("download")));
  }
}

TEST(DamagedTokenizer, NeverCrashes) {
  const std::string json = read_file(golden("qwen2_style/tokenizer.json"));
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    std::string damaged = json;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = "{}[]\",:0a\\"[random() % 10];
    try {
      Tokenizer::from_json(damaged, "damaged")
          .encode("In 1984, it's <think> \xF0\x9F\x98\x80", true);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
    }
  }
}

struct BadParts {
  const char* name;
  void (*spoil)(GgufTokenizerParts&);
  const char* says;
};

class BadGgufTokenizer : public testing::TestWithParam<BadParts> {};

INSTANTIATE_TEST_SUITE_P(
    , BadGgufTokenizer,
    testing::Values(
        BadParts{"NoTokens", [](GgufTokenizerParts& p) { p.tokens.clear(); }, "tokens has 0"},
        BadParts{"FewTypes", [](GgufTokenizerParts& p) { p.types.pop_back(); }, "token_type has"},
        BadParts{"FewScores", [](GgufTokenizerParts& p) { p.scores = {1}; }, "scores has 1"},
        BadParts{"BosTooLarge", [](GgufTokenizerParts& p) { p.bos_id = 1u << 30; }, "bos_token_id"},
        BadParts{"UnknownModel", [](GgufTokenizerParts& p) { p.model = std::string("rwkv"); },
                 "\"rwkv\""},
        BadParts{"UnknownPre", [](GgufTokenizerParts& p) { p.pre = std::string("odd"); },
                 "pre is \"odd\""},
        BadParts{"TokenTwice", [](GgufTokenizerParts& p) { p.tokens[9] = p.tokens[8]; }, "twice"},
        BadParts{"OneSidedMerge", [](GgufTokenizerParts& p) { p.merges[3] = std::string("ab"); },
                 "entry 3"},
        BadParts{"MergeOfNoToken",
                 [](GgufTokenizerParts& p) { p.merges[3] = std::string("\x01 \x02"); },
                 "cannot be read"},
        BadParts{"NotUtf8", [](GgufTokenizerParts& p) { p.tokens[9] = std::string("\xFF"); },
                 "not UTF-8"}),
    [](const auto& info) { return info.param.name; });

TEST_P(BadGgufTokenizer, IsRefusedByKey) {
  GgufTokenizerParts parts = golden_parts("smollm_style");
  GetParam().spoil(parts);
  const std::string text = input_error_of([&] { Tokenizer::from_gguf_parts(parts, "model.gguf"); });
  EXPECT_THAT(text, AllOf(testing::StartsWith("model.gguf: "), HasSubstr(GetParam().says)));
}

}  // namespace
}  // namespace wgrad::text
