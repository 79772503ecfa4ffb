#include <gtest/gtest.h>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

void expect_golden(const Json& row, const Json& expected, const text::TextAssets& assets) {
  const Row found = encode_one(row, assets);
  EXPECT_EQ(found.ids, expected["ids"].get<std::vector<uint32_t>>());
  EXPECT_EQ(flags(found), expected["counted"].get<std::string>()) << marked(found, assets);
}

TEST(DataGoldens, ChatsOfEveryFamilyHaveTheIdsAndCountedTokensOfTransformers) {
  const Json conversations = read_json("data/conversations.json");
  for (const Json& family : read_json("data/families.json")) {
    SCOPED_TRACE(family["name"]);
    const text::TextAssets assets = load({.tokenizer = family["tokenizer"].get<std::string>(),
                                          .chat_template = family["template"].get<std::string>(),
                                          .added_tokens = family["added_tokens"],
                                          .config = family["config"],
                                          .stop_ids = family["stop_ids"]});
    for (const Json& row : family["rows"]) {
      const Json& conversation = conversations[row["conversation"].get<size_t>()];
      SCOPED_TRACE(conversation.dump());
      if (row.contains("refused")) {
        EXPECT_THROW(encode_one(conversation, assets), Error);
      } else {
        EXPECT_NO_THROW(expect_golden(conversation, row, assets));
      }
    }
  }
}

TEST(DataGoldens, PlainRowsHaveTheIdsAndCountedTokensOfTransformers) {
  for (const Json& golden : read_json("data/plain.json")) {
    const text::TextAssets assets = without_template(golden["tokenizer"].get<std::string>());
    for (const Json& row : golden["rows"]) {
      SCOPED_TRACE(golden["tokenizer"].get<std::string>() + row["row"].dump());
      expect_golden(row["row"], row, assets);
    }
  }
}

}  // namespace
}  // namespace wgrad::data
