#include "text/text_assets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/text_test_support.h"

namespace wgrad::text {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const ordered_json kHi = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");

/// A folder with the Qwen-like tokenizer and what a test adds.
class ModelFolder : public TemporaryFolder {
 public:
  explicit ModelFolder(std::string_view style = "qwen2_style") {
    write("tokenizer.json", read_file(golden(std::string(style) + "/tokenizer.json")));
  }
  TextAssets load() const { return load_from_folder(path()); }
  std::string render() const { return load().chat_template->render(kHi, false); }
  std::string failure() const {
    return input_error_of([&] { load(); });
  }
};

TEST(TextAssets, NeedOnlyTheTokenizer) {
  const TextAssets assets = ModelFolder().load();
  EXPECT_FALSE(assets.chat_template);
  EXPECT_FALSE(assets.bos_id);
  EXPECT_FALSE(assets.eos_id);
  EXPECT_FALSE(assets.adds_bos);
  EXPECT_TRUE(assets.stop_ids.empty());
}

TEST(TextAssets, TakeSpecialTokensFromTheConfiguration) {
  const ModelFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": null, "pad_token": "<|endoftext|>",
                "eos_token": {"content": "<|im_end|>", "special": true}})");
  const TextAssets assets = folder.load();
  EXPECT_EQ(assets.eos_token, "<|im_end|>");
  EXPECT_EQ(assets.eos_id, assets.tokenizer.id("<|im_end|>"));
  EXPECT_EQ(assets.tokenizer.eos_id(), assets.eos_id);
  EXPECT_EQ(assets.pad_id, assets.tokenizer.id("<|endoftext|>"));
  EXPECT_EQ(assets.bos_token, "");
  EXPECT_THAT(assets.stop_ids, ElementsAre(*assets.eos_id));
}

TEST(TextAssets, TakeTheSpecialTokensMapOnlyForOlderFolders) {
  const ModelFolder folder;
  folder.write("special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_EQ(folder.load().eos_token, "<|endoftext|>");
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<|im_end|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(folder.load().eos_token, "<|im_end|>");
}

TEST(TextAssets, StopAtEveryTokenOfTheGenerationConfiguration) {
  const ModelFolder folder;
  const TextAssets bare = folder.load();
  const uint32_t end = *bare.tokenizer.id("<|im_end|>");
  const uint32_t text = *bare.tokenizer.id("<|endoftext|>");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder.write("generation_config.json", ordered_json{{"eos_token_id", {end, text}}}.dump());
  const TextAssets assets = folder.load();
  EXPECT_THAT(assets.stop_ids, testing::UnorderedElementsAre(end, text));
  EXPECT_TRUE(assets.is_stop(text));
  EXPECT_FALSE(assets.is_stop(0));
}

TEST(TextAssets, TakeEosFromTheModelConfigurationWhenNothingElseNamesIt) {
  const ModelFolder folder;
  folder.write("config.json", R"({"eos_token_id": 3})");
  const TextAssets assets = folder.load();
  EXPECT_EQ(assets.eos_id, 3u);
  EXPECT_EQ(assets.eos_token, assets.tokenizer.token(3));
}

TEST(TextAssets, KnowWhetherTheTokenizerAddsBos) {
  const ModelFolder folder("llama3_style");
  folder.write("tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>"})");
  EXPECT_TRUE(folder.load().adds_bos);
}

TEST(TextAssets, PreferTheTemplateOfItsOwnFile) {
  const ModelFolder folder;
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(folder.render(), "json");
  folder.write("tokenizer_config.json", R"({"chat_template": "config {{ eos_token }}",
                "eos_token": "<|im_end|>"})");
  EXPECT_EQ(folder.render(), "config <|im_end|>");
  folder.write("chat_template.jinja", "own file");
  EXPECT_EQ(folder.render(), "own file");
}

TEST(TextAssets, ChooseTheNamedTemplateByTools) {
  const ModelFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "tool_use", "template": "with tools"}, {"name": "default", "template": "plain"}]})");
  const TextAssets assets = folder.load();
  EXPECT_EQ(assets.chat_template->render(kHi, false), "plain");
  EXPECT_EQ(assets.chat_template->render(kHi, false, ordered_json::array()), "with tools");
  folder.write("chat_template.jinja", "plain file");
  folder.write("additional_chat_templates/tool_use.jinja", "tool file");
  EXPECT_EQ(folder.load().chat_template->render(kHi, false, ordered_json::array()), "tool file");
}

TEST(TextAssets, ComeFromAGgufFileTheSameWay) {
  GgufTokenizerParts parts = golden_parts("smollm_style");
  parts.chat_template = "{{ bos_token }}{{ messages[0].content }}";
  parts.eot_id = 5;
  const TextAssets assets = load_from_gguf(parts, "model.gguf");
  EXPECT_EQ(assets.bos_token, "<|im_start|>");
  EXPECT_EQ(assets.eos_id, parts.eos_id);
  EXPECT_FALSE(assets.adds_bos);
  EXPECT_THAT(assets.stop_ids, ElementsAre(5u, *parts.eos_id));
  EXPECT_EQ(assets.chat_template->render(kHi, false), "<|im_start|>Hi");
}

struct Damage {
  const char* name;
  const char* file;
  const char* text;
  const char* says;
};

class DamagedFolder : public testing::TestWithParam<Damage> {};

INSTANTIATE_TEST_SUITE_P(
    , DamagedFolder,
    testing::Values(
        Damage{"Tokenizer", "tokenizer.json", R"({"model": )", "cannot be read"},
        Damage{"ConfigNotJson", "tokenizer_config.json", "{\n\"a\": 1,\n}", "line 3, column 1"},
        Damage{"ConfigNotAnObject", "tokenizer_config.json", "[]", "holds a JSON array"},
        Damage{"ConfigNotUtf8", "tokenizer_config.json", "{\"a\": \"\xFF\"}", "not valid JSON"},
        Damage{"TokenOfWrongType", "tokenizer_config.json", R"({"eos_token": 7})", "\"eos_token\""},
        Damage{"TokenNotThere", "tokenizer_config.json", R"({"eos_token": "<none>"})", "<none>"},
        Damage{"AddedTokenMissing", "tokenizer_config.json",
               R"({"added_tokens_decoder": {"9999": {"content": "<new>"}}})", "<new>"},
        Damage{"AddedTokenMoved", "tokenizer_config.json",
               R"({"added_tokens_decoder": {"0": {"content": "<think>"}}})", "gives it"},
        Damage{"TemplateOfWrongType", "tokenizer_config.json", R"({"chat_template": 7})",
               "\"chat_template\""},
        Damage{"NoDefaultTemplate", "tokenizer_config.json",
               R"({"chat_template": [{"name": "rag", "template": ""}]})", "named default"},
        Damage{"TemplateDoesNotParse", "chat_template.jinja", "\n{{ }", "line 2"},
        Damage{"MapNotJson", "special_tokens_map.json", "", "not valid JSON"},
        Damage{"EosOfWrongType", "generation_config.json", R"({"eos_token_id": ["a"]})",
               "eos_token_id"},
        Damage{"EosNegative", "generation_config.json", R"({"eos_token_id": -1})", "eos_token_id"}),
    [](const auto& info) { return info.param.name; });

TEST_P(DamagedFolder, IsRefusedByFile) {
  const ModelFolder folder;
  folder.write(GetParam().file, GetParam().text);
  EXPECT_THAT(folder.failure(), AllOf(HasSubstr((folder.path() / GetParam().file).string()),
                                      HasSubstr(GetParam().says), HasSubstr("; ")));
}

TEST(EmptyFolder, SaysHowToGetATokenizer) {
  const TemporaryFolder folder;
  EXPECT_THAT(input_error_of([&] { load_from_folder(folder.path()); }),
              AllOf(HasSubstr("no tokenizer.json"), HasSubstr("save_pretrained")));
}

}  // namespace
}  // namespace wgrad::text
