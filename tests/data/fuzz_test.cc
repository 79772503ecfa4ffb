#include <gtest/gtest.h>

#include <random>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

/// Rows that are nearly of a known format.
class RandomRows {
 public:
  explicit RandomRows(uint32_t seed) : random_(seed) {}

  Json row() {
    Json row = Json::object();
    for (int i = 0; i < 3; ++i) row[pick(kKeys)] = value(3);
    if (below(2) == 0) row["messages"] = messages();
    return row;
  }

 private:
  static constexpr std::array kKeys = {"messages", "conversations", "prompt", "completion",
                                       "text",     "instruction",   "input",  "output",
                                       "tools",    "role",          "content"};
  static constexpr std::array kTexts = {"",
                                        "a",
                                        "user",
                                        "assistant",
                                        "system",
                                        "tool",
                                        "human",
                                        "gpt",
                                        "<|im_end|>",
                                        "<|im_start|>assistant\n",
                                        "</think>",
                                        "\n",
                                        "\uE8F3\uE8F4\uE8F3",
                                        "é😀"};

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  template <typename List>
  const char* pick(const List& list) {
    return list[below(static_cast<uint32_t>(list.size()))];
  }

  Json messages() {
    Json list = Json::array();
    const uint32_t count = below(5);
    for (uint32_t i = 0; i < count; ++i) {
      Json message = {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", pick(kTexts)}};
      if (below(3) == 0) message["role"] = pick(kTexts);
      if (below(4) == 0) message["content"] = value(2);
      if (below(4) == 0) message["tool_calls"] = value(3);
      if (below(5) == 0) message["reasoning_content"] = value(1);
      list.push_back(std::move(message));
    }
    return list;
  }

  Json value(int depth) {
    switch (below(depth > 0 ? 9 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return -1;
      case 2:
        return true;
      case 6:
        return messages();
      case 7: {
        Json list = Json::array();
        for (uint32_t i = below(3); i > 0; --i) list.push_back(value(depth - 1));
        return list;
      }
      case 8: {
        Json object = Json::object();
        for (uint32_t i = below(3); i > 0; --i) object[pick(kKeys)] = value(depth - 1);
        return object;
      }
      default:
        return pick(kTexts);
    }
  }

  std::mt19937 random_;
};

TEST(Fuzz, AnyRowIsEncodedOrRefused) {
  std::string qwen3;
  for (const Json& family : read_json("data/families.json")) {
    if (family["name"] == "qwen3") qwen3 = family["template"].get<std::string>();
  }
  int64_t encoded = 0;
  for (const text::TextAssets& assets :
       {chatml(), load({.chat_template = qwen3}), without_template("llama2_style")}) {
    RandomRows random(11);
    std::string content;
    for (int i = 0; i < 600; ++i) content += random.row().dump() + "\n";
    const Outcome outcome =
        encode_file(content, assets, {.skip_bad_rows = true, .keep_uncounted = true});
    EXPECT_EQ(outcome.summary.bad + outcome.summary.rows + outcome.summary.nothing_left, 600);
    encoded += outcome.summary.rows;
    for (const Row& row : outcome.rows) {
      ASSERT_EQ(row.ids.size(), row.counted.size());
      for (uint8_t counted : row.counted) ASSERT_LE(counted, 1);
    }
  }
  EXPECT_GT(encoded, 100) << "the rows are too random to test more than the refusals";
}

TEST(Fuzz, AnyBytesAreEncodedOrRefused) {
  const text::TextAssets assets = chatml();
  RandomRows random(12);
  std::mt19937 bytes(13);
  std::string content;
  for (int i = 0; i < 600; ++i) {
    std::string line = random.row().dump();
    for (int k = 0; k < 2; ++k) line[bytes() % line.size()] = static_cast<char>(bytes());
    content += line + "\n";
  }
  const Outcome outcome = encode_file(content, assets, {.skip_bad_rows = true});
  EXPECT_GT(outcome.summary.bad, 0);
}

}  // namespace
}  // namespace wgrad::data
