#include "data/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kHello =
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Hello<|im_end|>]]\n";

TEST(Formats, MessagesAreAChat) {
  const text::TextAssets assets = chatml();
  EXPECT_EQ(marked_one(chat({user("Hi"), assistant("Hello")}), assets), kHello);
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "He"}}, {{"type", "text"}, {"text", "llo"}}});
  EXPECT_EQ(marked_one(chat({user("Hi"), assistant(parts)}), assets), kHello);
}

TEST(Formats, ConversationsAreAChat) {
  const text::TextAssets assets = chatml();
  for (const char* name : {"gpt", "assistant", "chatgpt", "model"}) {
    EXPECT_EQ(
        marked_one({{"conversations",
                     {{{"from", "human"}, {"value", "Hi"}}, {{"from", name}, {"value", "Hello"}}}}},
                   assets),
        kHello);
  }
  EXPECT_EQ(
      marked_one({{"conversations",
                   {{{"from", "system"}, {"value", "S"}}, {{"from", "gpt"}, {"value", "A"}}}}},
                 assets),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n[[A<|im_end|>]]\n");
}

TEST(Formats, ToolsReachTheTemplate) {
  const text::TextAssets assets =
      load({.chat_template = std::string("{{ tools | tojson if tools else 'none' }}") + kChatMl});
  Json row = chat({user("Hi"), assistant("Hello")});
  EXPECT_EQ(marked_one(row, assets), "none" + kHello);
  row["tools"] = nullptr;
  EXPECT_EQ(marked_one(row, assets), "none" + kHello);
  row["tools"] = Json::array();
  EXPECT_EQ(marked_one(row, assets), "none" + kHello);
  row["tools"] = Json::array({{{"z", 1}, {"a", 2}}});
  EXPECT_EQ(marked_one(row, assets), "[{\"z\": 1, \"a\": 2}]" + kHello);
}

TEST(Formats, APromptAndACompletionAreOneText) {
  const Json row = {{"prompt", "a b"}, {"completion", " c"}};
  EXPECT_EQ(marked_one(row, chatml()), "a b[[ c<|im_end|>]]");
  EXPECT_EQ(marked_one(row, without_template("llama3_style")),
            "<|begin_of_text|>a b[[ c<|end_of_text|>]]");
}

TEST(Formats, APromptAndACompletionAreAChatOnDemand) {
  const EncodeOptions options = {.prompt_style = PromptStyle::kChat};
  EXPECT_EQ(marked_one({{"prompt", "Hi"}, {"completion", "Hello"}}, chatml(), options), kHello);
  EXPECT_THAT(
      input_error_of([&] {
        marked_one({{"prompt", "Hi"}, {"completion", "Hello"}}, without_template(), options);
      }),
      AllOf(HasSubstr("d.jsonl:1: "), HasSubstr("no chat template")));
}

TEST(Formats, OnlyTheTurnsOfACompletionListCount) {
  EXPECT_EQ(marked_one({{"prompt", {user("1"), assistant("2"), user("3")}},
                        {"completion", {assistant("4"), user("5"), assistant("6")}}},
                       chatml()),
            "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
            "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n[[4<|im_end|>]]\n"
            "<|im_start|>user\n5<|im_end|>\n<|im_start|>assistant\n[[6<|im_end|>]]\n");
}

TEST(Formats, AlpacaIsAChatWhereThereIsATemplate) {
  const text::TextAssets assets = chatml();
  Json row = {{"instruction", "Hi"}, {"input", ""}, {"output", "Hello"}};
  EXPECT_EQ(marked_one(row, assets), kHello);
  row["input"] = nullptr;
  EXPECT_EQ(marked_one(row, assets), kHello);
  row.erase("input");
  EXPECT_EQ(marked_one(row, assets), kHello);
  row["input"] = "1 2";
  EXPECT_EQ(marked_one(row, assets),
            "<|im_start|>user\nHi\n\n1 2<|im_end|>\n<|im_start|>assistant\n[[Hello<|im_end|>]]\n");
}

TEST(Formats, AlpacaIsTheUsualPromptWhereThereIsNoTemplate) {
  const text::TextAssets assets = without_template();
  EXPECT_EQ(marked_one({{"instruction", "Add."}, {"output", "3"}}, assets),
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\nAdd.\n\n### Response:\n[[3<|im_end|>]]");
  EXPECT_EQ(
      marked_one({{"instruction", "Add."}, {"input", "1 2"}, {"output", "3"}}, assets),
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n[[3<|im_end|>]]");
}

TEST(Formats, OfATextEverythingButTheFirstTokenCounts) {
  EXPECT_EQ(marked_one({{"text", "a b"}}, without_template()), "a[[ b<|im_end|>]]");
  EXPECT_EQ(marked_one({{"text", "a b"}}, without_template("llama2_style")), "<s>[[a b</s>]]");
}

TEST(Formats, TheChatIsPreferredToItsFlattenedCopies) {
  Json row = chat({user("Hi"), assistant("Hello")});
  row["prompt"] = "p";
  row["text"] = "t";
  EXPECT_EQ(marked_one(row, chatml()), kHello);
  EXPECT_EQ(marked_one({{"instruction", "Hi"}, {"output", "Hello"}, {"text", "t"}}, chatml()),
            kHello);
}

TEST(Formats, EveryTokenButTheFirstCountsOnDemand) {
  const EncodeOptions all = {.train_on = TrainOn::kAll};
  EXPECT_EQ(marked_one(chat({user("a"), assistant("b")}), chatml(), all),
            "<|im_start|>[[user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n]]");
  EXPECT_EQ(marked_one({{"prompt", "a b"}, {"completion", " c"}}, chatml(), all),
            "a[[ b c<|im_end|>]]");
  EXPECT_EQ(marked_one({{"text", "a b"}}, chatml(), all), "a[[ b<|im_end|>]]");
}

struct BadRow {
  const char* text;
  const char* seen;
};

class BadRows : public testing::TestWithParam<BadRow> {};

TEST_P(BadRows, AreRefusedWithFileLineAndReason) {
  const text::TextAssets assets = chatml();
  const std::string content = std::string("\n{\"text\": \"a b\"}\n") + GetParam().text + "\n";
  EXPECT_THAT(input_error_of([&] { encode_file(content, assets); }),
              AllOf(HasSubstr("d.jsonl:3"), HasSubstr(GetParam().seen)));
  const Outcome skipped = encode_file(content, assets, {.skip_bad_rows = true});
  EXPECT_EQ(skipped.rows.size(), 1u);
  EXPECT_EQ(skipped.summary.bad, 1);
  EXPECT_THAT(skipped.summary.first_bad, testing::ElementsAre(HasSubstr(GetParam().seen)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadRows,
    testing::Values(
        BadRow{R"({"text": "a)", "d.jsonl:3:"}, BadRow{"nonsense", "d.jsonl:3:2"},
        BadRow{"{\"text\": \"a\xff\"}", "UTF-8"}, BadRow{"[]", "the row is array"},
        BadRow{"7", "the row is number"}, BadRow{"null", "the row is null"},
        BadRow{"{}", "the row has no key"},
        BadRow{R"({"question": 1, "answer": 2})", "the keys \"question\", \"answer\""},
        BadRow{R"({"prompt": "a"})", "the keys \"prompt\""},
        BadRow{R"({"text": 1})", "\"text\" is number"}, BadRow{R"({"text": ""})", "text is empty"},
        BadRow{R"({"prompt": "", "completion": ""})", "text is empty"},
        BadRow{R"({"prompt": 1, "completion": "a"})", "\"prompt\" is number"},
        BadRow{R"({"prompt": "a", "completion": null})", "\"completion\" is null"},
        BadRow{R"({"prompt": [], "completion": []})", "\"prompt\" is empty"},
        BadRow{R"({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]})",
               "\"prompt\" is string"},
        BadRow{R"({"instruction": [], "output": "a"})", "\"instruction\" is array"},
        BadRow{R"({"instruction": "a", "input": {}, "output": "a"})", "\"input\" is object"},
        BadRow{R"({"messages": []})", "\"messages\" is empty"},
        BadRow{R"({"messages": null})", "\"messages\" is null"},
        BadRow{R"({"messages": "a"})", "\"messages\" is string"},
        BadRow{R"({"messages": {"role": "user", "content": "a"}})", "\"messages\" is object"},
        BadRow{R"({"messages": ["a"]})", "has no \"role\""},
        BadRow{R"({"messages": [{"content": "a"}]})", "has no \"role\""},
        BadRow{R"({"messages": [{"role": 1, "content": "a"}]})", "\"role\" is number"},
        BadRow{R"({"messages": [{"role": "bot", "content": "a"}]})", "role \"bot\""},
        BadRow{R"({"messages": [{"role": "User", "content": "a"}]})", "role \"User\""},
        BadRow{R"({"messages": [{"role": "user"}]})", "no \"content\""},
        BadRow{R"({"messages": [{"role": "user", "content": null}]})", "no \"content\""},
        BadRow{R"({"messages": [{"role": "user", "content": 1}]})", "\"content\" is number"},
        BadRow{R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
               "a part that is not text"},
        BadRow{R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]})",
               "\"text\" is number"},
        BadRow{R"({"messages": [{"role": "user", "content": "a"}], "tools": "b"})",
               "\"tools\":1:1: not valid JSON"},
        BadRow{R"({"messages": [{"role": "user", "content": "a"}], "tools": 1})",
               "\"tools\" is number"},
        BadRow{R"({"prompt": [{"role": "user", "content": "a"}], )"
               R"("completion": [{"role": "assistant", "content": "b"}], "tools": {}})",
               "\"tools\" is object"},
        BadRow{R"({"conversations": []})", "\"conversations\" is empty"},
        BadRow{R"({"conversations": 1})", "\"conversations\" is number"},
        BadRow{R"({"conversations": [{"role": "user", "content": "a"}]})", "lacks \"from\""},
        BadRow{R"({"conversations": [{"from": "alien", "value": "a"}]})", "\"from\" is \"alien\""},
        BadRow{R"({"conversations": [{"from": "human", "value": 1}]})", "\"value\" is number"}));

TEST(Formats, ToolsMayBeTheTextOfAList) {
  const text::TextAssets assets =
      load({.chat_template = std::string("{{ tools | tojson if tools else 'none' }}") + kChatMl});
  Json row = chat({user("Hi"), assistant("Hello")});
  row["tools"] = R"([{"z": 1, "a": 2}])";
  EXPECT_EQ(marked_one(row, assets), "[{\"z\": 1, \"a\": 2}]" + kHello);
  row["tools"] = "";
  EXPECT_EQ(marked_one(row, assets), "none" + kHello);
  row["tools"] = "[broken";
  EXPECT_THAT(input_error_of([&] { marked_one(row, assets); }),
              AllOf(HasSubstr("d.jsonl:1, \"tools\""), HasSubstr("not valid JSON")));
  row["tools"] = std::string(100000, '[');
  EXPECT_THAT(input_error_of([&] { marked_one(row, assets); }), HasSubstr("nested"));
}

TEST(Formats, VariablesOfTheTemplateComeWithTheRow) {
  const text::TextAssets assets =
      load({.chat_template = std::string("{{ mood | default('calm') }} ") + kChatMl});
  Json row = chat({user("Hi"), assistant("Hello")});
  EXPECT_EQ(marked_one(row, assets), "calm " + kHello);
  row["chat_template_kwargs"] = {{"mood", "merry"}};
  EXPECT_EQ(marked_one(row, assets), "merry " + kHello);
  row["chat_template_kwargs"] = {{"messages", Json::array()}};
  EXPECT_THAT(input_error_of([&] { marked_one(row, assets); }), HasSubstr("sets \"messages\""));
  row["chat_template_kwargs"] = "merry";
  EXPECT_THAT(input_error_of([&] { marked_one(row, assets); }), HasSubstr("is string"));
}

TEST(Formats, ASystemTextBesideTheTurnsComesFirst) {
  const std::string expected = "<|im_start|>system\nS<|im_end|>\n" + kHello;
  const Json talk = {{{"from", "human"}, {"value", "Hi"}}, {{"from", "gpt"}, {"value", "Hello"}}};
  EXPECT_EQ(marked_one({{"conversations", talk}, {"system", "S"}}, chatml()), expected);
  EXPECT_EQ(marked_one({{"conversations", talk}, {"system", ""}}, chatml()), kHello);
  const Json alpaca = {{"instruction", "Hi"}, {"output", "Hello"}, {"system", "S"}};
  EXPECT_EQ(marked_one(alpaca, chatml()), expected);
  EXPECT_THAT(input_error_of([&] { marked_one(alpaca, without_template()); }),
              HasSubstr("no chat template to show it in"));
  Json both = chat({message("system", "T"), user("Hi"), assistant("Hello")});
  both["system"] = "S";
  EXPECT_THAT(input_error_of([&] { marked_one(both, chatml()); }), HasSubstr("and a system turn"));
}

TEST(Formats, AnAlpacaHistoryIsNotDropped) {
  Json row = {{"instruction", "Hi"}, {"output", "Hello"}, {"history", Json::array()}};
  EXPECT_EQ(marked_one(row, chatml()), kHello);
  row["history"] = {{"a", "b"}};
  EXPECT_THAT(input_error_of([&] { marked_one(row, chatml()); }),
              AllOf(HasSubstr("d.jsonl:1"), HasSubstr("\"history\"")));
}

TEST(Formats, RowsOfPreferencesAreRefusedByName) {
  const Json answer = Json::array({assistant("b")});
  for (const Json& row :
       {Json{{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}},
        Json{{"chosen", Json::array({user("a"), assistant("b")})}, {"rejected", answer}},
        Json{{"messages", Json::array({user("a")})}, {"chosen", answer}, {"rejected", answer}}}) {
    EXPECT_THAT(input_error_of([&] { marked_one(row, chatml()); }),
                AllOf(HasSubstr("d.jsonl:1: a row of preferences"), HasSubstr("\"rejected\""),
                      HasSubstr("keep the better answer")));
  }
  EXPECT_THAT(input_error_of([&] {
                marked_one({{"prompt", "a"}, {"completion", "b"}, {"label", false}}, chatml());
              }),
              HasSubstr("a row of preferences"));
}

TEST(Formats, ATurnThatSaysSoDoesNotCount) {
  Json first = assistant("b"), second = assistant("d");
  const std::string expected =
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
      "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n[[d<|im_end|>]]\n";
  for (const auto& [key, no, yes] :
       {std::tuple{"weight", Json(0), Json(1)}, std::tuple{"train", Json(false), Json(true)}}) {
    first[key] = no;
    second[key] = yes;
    EXPECT_EQ(marked_one(chat({user("a"), first, user("c"), second}), chatml()), expected);
    first.erase(key);
    second.erase(key);
  }
  EXPECT_EQ(marked_one({{"conversations",
                         {{{"from", "human"}, {"value", "a"}},
                          {{"from", "gpt"}, {"value", "b"}, {"weight", 0}},
                          {{"from", "human"}, {"value", "c"}},
                          {{"from", "gpt"}, {"value", "d"}}}}},
                       chatml()),
            expected);
  for (const auto& [key, value] : {std::pair{"weight", Json(0.5)}, std::pair{"train", Json(0)}}) {
    first[key] = value;
    EXPECT_THAT(input_error_of([&] {
                  marked_one(chat({user("a"), first}), chatml());
                }),
                HasSubstr(std::string("a message's \"") + key + "\" is " + value.dump()));
    first.erase(key);
  }
}

}  // namespace
}  // namespace wgrad::data
