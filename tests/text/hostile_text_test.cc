#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "text/files.h"
#include "text/text_assets.h"
#include "text/text_test_support.h"
#include "text/tokenizer.h"

namespace wgrad::text {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

ordered_json tokenizer_json() {
  return ordered_json::parse(read_file(golden("qwen2_style/tokenizer.json")));
}

std::string failure_to_encode(const ordered_json& json) {
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump(), "here.json");
  return input_error_of([&] { tokenizer.encode("aaaaaaaaaa", true); });
}

TEST(HostileTokenizer, NormalizerThatGrowsWithoutBoundIsStopped) {
  ordered_json json = tokenizer_json();
  ordered_json steps = ordered_json::array();
  for (int i = 0; i < 12; ++i) {
    steps.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}});
  }
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  EXPECT_THAT(failure_to_encode(json), AllOf(HasSubstr("here.json"), HasSubstr("MB of memory")));
}

TEST(HostileTokenizer, PostProcessorThatAddsWithoutBoundIsStopped) {
  ordered_json json = tokenizer_json();
  const ordered_json piece = {{"SpecialToken", {{"id", "N"}, {"type_id", 0}}}};
  ordered_json single(10000, piece);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  const ordered_json special = {
      {"id", "N"}, {"ids", ordered_json(1000, 1)}, {"tokens", ordered_json(1000, "N")}};
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", single},
                            {"pair", ordered_json::array()},
                            {"special_tokens", {{"N", special}}}};
  EXPECT_THAT(failure_to_encode(json), AllOf(HasSubstr("here.json"), HasSubstr("MB of memory")));
}

TEST(HostileTokenizer, PatternThatTriesWithoutEndNamesTheFile) {
  ordered_json json = tokenizer_json();
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a+)+$"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump(), "here.json");
  EXPECT_THAT(input_error_of([&] { tokenizer.encode(std::string(40, 'a') + "!", true); }),
              AllOf(HasSubstr("here.json"), HasSubstr("retry-limit")));
}

TEST(HostileFile, ConfigurationOfTooManyKeysIsRefused) {
  std::string text = R"({"bos_token": null)";
  for (int i = 0; i < 100000; ++i) text += ", \"k" + std::to_string(i) + "\": 1";
  const TemporaryFolder folder;
  folder.write("c.json", text + "}");
  EXPECT_THAT(input_error_of([&] { read_json_object(folder.path() / "c.json"); }),
              AllOf(HasSubstr("c.json"), HasSubstr("keys in one object")));
}

TEST(HostileFile, ConfigurationNestedTooDeeplyIsRefused) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "{\"a\":";
  folder.write("c.json", text + "1" + std::string(100000, '}'));
  EXPECT_THAT(input_error_of([&] { read_json_object(folder.path() / "c.json"); }),
              AllOf(HasSubstr("c.json"), HasSubstr("nested deeper than 100")));
}

TEST(HostileFile, LinkThatLeadsNowhereOrToItselfIsNamed) {
  for (const char* target : {"nowhere", "tokenizer_config.json"}) {
    const TemporaryFolder folder;
    folder.write("tokenizer.json", tokenizer_json().dump());
    std::filesystem::create_symlink(target, folder.path() / "tokenizer_config.json");
    EXPECT_THAT(input_error_of([&] { load_from_folder(folder.path()); }),
                AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("cannot be read")));
  }
}

}  // namespace
}  // namespace wgrad::text
