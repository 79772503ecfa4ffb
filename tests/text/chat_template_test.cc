#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "text/text_test_support.h"

namespace wgrad::text {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kGoldenNow = 1720256703;  // 2024-07-06 09:05:03

const ordered_json kHi = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");

ChatTemplate make(std::string source) { return ChatTemplate(std::move(source), "<s>", "</s>"); }

std::string render(std::string source) { return make(std::move(source)).render(kHi, false); }

std::string failure(std::string source) {
  return input_error_of([&] { render(std::move(source)); });
}

TEST(ChatTemplateGoldens, RendersAndRefusesAsTransformersDoes) {
  const ordered_json conversations = golden_json("conversations.json");
  std::map<std::string, ChatTemplate> templates;
  for (const auto& row : golden_json("renderings.json")) {
    const auto name = row["template"].get<std::string>();
    if (!templates.contains(name)) {
      templates.emplace(name, make(read_file(golden("templates/" + name + ".jinja"))));
      templates.at(name).set_now(kGoldenNow);
    }
    const ordered_json& talk = conversations[row["conversation"].get<size_t>()];
    const auto run = [&] {
      return templates.at(name).render(talk["messages"], row["add_generation_prompt"].get<bool>(),
                                       talk.value("tools", ordered_json()),
                                       talk.value("extra", ordered_json()));
    };
    if (row.contains("error")) {
      EXPECT_THROW(run(), Error) << name << " " << talk;
    } else {
      EXPECT_EQ(run(), row["text"].get<std::string>()) << name << " " << talk;
    }
  }
}

TEST(ChatTemplate, KeepsTheOrderOfKeysInTools) {
  const auto tools = ordered_json::parse(R"([{"z": 1, "a": {"y": 2, "b": [true, null, 1.0]}}])");
  EXPECT_EQ(make("{{ tools | tojson }}").render(kHi, false, tools),
            R"([{"z": 1, "a": {"y": 2, "b": [true, null, 1.0]}}])");
}

TEST(ChatTemplate, GivesExtraVariablesAndLetsThemOverride) {
  const ordered_json extra = {{"enable_thinking", false}, {"bos_token", "<b>"}};
  const std::string source = "{{ bos_token }}{{ enable_thinking is defined }}{{ enable_thinking }}";
  EXPECT_EQ(make(source).render(kHi, false, nullptr, extra), "<b>TrueFalse");
  EXPECT_EQ(make(source).render(kHi, false), "<s>False");
}

TEST(ChatTemplate, LeavesAMissingSpecialTokenUndefined) {
  const ChatTemplate chat_template("{{ bos_token is defined }} {{ bos_token }}",
                                   SpecialTokenTexts{});
  EXPECT_EQ(chat_template.render(kHi, false), "False ");
}

TEST(ChatTemplate, UsesTheToolTemplateForConversationsWithTools) {
  ChatTemplate chat_template = make("plain");
  chat_template.set_tool_template(make("tools: {{ tools | length }}"));
  EXPECT_EQ(chat_template.render(kHi, false), "plain");
  EXPECT_EQ(chat_template.render(kHi, false, ordered_json::array({ordered_json::object()})),
            "tools: 1");
}

TEST(ChatTemplate, HasNoItemsWhereAValueIsUndefined) {
  EXPECT_EQ(render("{% for k, v in messages[0].nothing | items %}x{% endfor %}-"), "-");
  EXPECT_EQ(render("{% for k, v in messages[0] | items %}{{ k }} {% endfor %}"), "role content ");
  EXPECT_THAT(failure("{{ 1 | items }}"), HasSubstr("line 1"));
}

TEST(ChatTemplate, KeepsItsDateForAWholeRun) {
  ChatTemplate chat_template =
      make("{{ strftime_now('%d %b %Y %H:%M:%S') }} {{ strftime_now('%-d') }}");
  chat_template.set_now(kGoldenNow);
  EXPECT_EQ(chat_template.render(kHi, false), "06 Jul 2024 09:05:03 6");
}

TEST(ChatTemplate, RendersFromSeveralThreads) {
  const ChatTemplate chat_template = make("{% for m in messages %}{{ m.content }}{% endfor %}");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) count += chat_template.render(kHi, false) != "Hi";
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(BrokenTemplate, IsRefusedWithItsLineWhenItDoesNotParse) {
  EXPECT_THAT(failure("a\n{% for x in %}"),
              AllOf(StartsWith("chat template: "), HasSubstr("line 2"), HasSubstr("syntax error")));
  EXPECT_THAT(failure("{% if true %}"), HasSubstr("syntax error"));
  EXPECT_THAT(failure("{% nonsense %}"), HasSubstr("unknown statement nonsense"));
}

TEST(BrokenTemplate, IsRefusedWithItsLineWhenItCallsWhatDoesNotExist) {
  EXPECT_THAT(failure("a\nb\n{{ open('/etc/passwd') }}"),
              AllOf(HasSubstr("line 3"), HasSubstr("open is unknown")));
  EXPECT_THAT(failure("\n{{ 'a' | frobnicate }}"),
              AllOf(HasSubstr("line 2"), HasSubstr("frobnicate")));
  EXPECT_THAT(failure("{{ 'a'.frobnicate() }}"), HasSubstr("frobnicate"));
  EXPECT_THAT(failure("{{ messages[0].a.b }}"), HasSubstr("undefined"));
  EXPECT_THAT(failure("{% include 'other' %}"), HasSubstr("other"));
}

TEST(BrokenTemplate, ShowsTheTextThatItRaises) {
  EXPECT_THAT(failure("\n\n{{ raise_exception('roles must alternate') }}"),
              AllOf(HasSubstr("line 3"), HasSubstr("): roles must alternate")));
}

TEST(HostileTemplate, IsStoppedWhenItDoesNotEnd) {
  const std::string loop =
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% endfor %}{% endfor %}";
  EXPECT_THAT(failure(loop), HasSubstr("runs too long"));
}

TEST(HostileTemplate, IsStoppedWhenItRecurses) {
  EXPECT_THAT(failure("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"),
              HasSubstr("recursion"));
  EXPECT_THAT(failure("{% include 'chat_template' %}"),
              AllOf(HasSubstr("recursion"), testing::SizeIs(testing::Lt(300u))));
  const auto repeat = [](std::string_view text, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const char* opening : {"(", "[", "{1:", "f(", "a["}) {
    EXPECT_THAT(failure("{{ " + repeat(opening, 5000)), HasSubstr("recursion"));
  }
  EXPECT_THAT(failure(repeat("{% if 1 %}", 5000)), HasSubstr("recursion"));
  // Chains are as long as a template may be.
  EXPECT_EQ(render("{{ " + repeat("not ", 30000) + "true }}"), "True");
  EXPECT_EQ(render("{{ 1" + repeat("+1", 60000) + " }}"), "60001");
  EXPECT_EQ(render("{{ 1" + repeat("|abs", 30000) + " }}"), "1");
  EXPECT_THAT(failure("{{ x" + repeat(".a", 60000) + " }}"), HasSubstr("undefined"));
  EXPECT_THAT(failure(repeat(" ", 200000)), HasSubstr("128 KiB"));
}

TEST(HostileTemplate, IsStoppedWhenItEatsMemory) {
  EXPECT_THAT(failure("{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}"
                      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
              HasSubstr("MB of memory"));
  EXPECT_THAT(failure("{% for i in range(90000) %}{{ 'x' * 10000 }}{% endfor %}"),
              HasSubstr("MB of memory"));
  failure("{{ 'x' * 99999999999 }}");
}

TEST(HostileTemplate, MayNestValuesDeeplyWithoutACrash) {
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_EQ(render(nest + "done"), "done");
  failure(nest + "{{ ns.x }}");
  failure(nest + "{{ ns.x | tojson }}");
}

TEST(HostileTemplate, CannotBreakThroughWithAPanic) {
  // Slicing an empty string backwards panics inside the template engine.
  EXPECT_THAT(failure("{{ ''[::-1] }}"), HasSubstr("internal error"));
  EXPECT_EQ(render("still {{ 1 + 1 }}"), "still 2");
}

TEST(BadMessages, AreRefused) {
  const ChatTemplate chat_template = make("{{ messages | length }}");
  const auto refuse = [&](const ordered_json& messages) {
    return input_error_of([&] { chat_template.render(messages, false); });
  };
  EXPECT_THAT(refuse(ordered_json::array()), HasSubstr("no messages"));
  EXPECT_THAT(refuse("text"), HasSubstr("no messages"));
  EXPECT_THAT(refuse({1, 2}), HasSubstr("a message is a JSON number"));
  EXPECT_THAT(refuse({{{"role", "user"}, {"content", "\xFF"}}}), HasSubstr("not UTF-8"));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(refuse({{{"role", "user"}, {"content", ordered_json::parse(deep)}}}),
              HasSubstr("100 deep"));
}

}  // namespace
}  // namespace wgrad::text
