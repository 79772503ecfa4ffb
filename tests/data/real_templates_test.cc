#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

/// FNV-1a over the 32-bit words of the ids, then of the labels.
std::string hash_of(const Row& row) {
  uint64_t hash = 0xCBF29CE484222325ull;
  const auto mix = [&](uint32_t word) { hash = (hash ^ word) * 0x100000001B3ull; };
  for (const uint32_t id : row.ids) mix(id);
  for (size_t i = 0; i < row.ids.size(); ++i) {
    mix(row.counted[i] ? row.ids[i] : static_cast<uint32_t>(-100));
  }
  return fmt::format("{:016x}", hash);
}

text::TextAssets assets_of(const Json& model, const Json& goldens) {
  text::TextAssets assets = load(
      {.tokenizer = model["tokenizer"].get<std::string>(),
       .chat_template = read_text(fs::path(WGRAD_TEST_DATA) / model["template"].get<std::string>()),
       .added_tokens = model["added_tokens"],
       .config = model["config"],
       .stop_ids = model["stop_ids"]});
  assets.chat_template->set_now(goldens["now"].get<int64_t>());
  return assets;
}

/// Calls `check(row, golden, assets)` for each conversation that a model's template takes, and
/// expects a refusal of the others.
template <typename Check>
void for_each_model(const Check& check) {
  const Json goldens = read_json("data/real_templates.json");
  const Json& conversations = goldens["conversations"];
  int taken = 0;
  for (const Json& model : goldens["models"]) {
    const text::TextAssets assets = assets_of(model, goldens);
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}, {}", model["name"].dump(), conversations[i].dump()));
      const Json& golden = model["rows"][i];
      if (golden.is_null()) {
        EXPECT_THROW(encode_one(conversations[i], assets), Error);
        continue;
      }
      try {
        check(encode_one(conversations[i], assets), golden, assets);
        ++taken;
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  EXPECT_GT(taken, 300) << "most rows of most models are taken";
}

TEST(RealTemplates, GiveTheIdsAndCountedTokensOfTransformers) {
  for_each_model([](const Row& row, const Json& golden, const text::TextAssets& assets) {
    EXPECT_EQ(hash_of(row), golden["hash"].get<std::string>())
        << marked(row, assets) << "\ncounted should be " << golden["counted"];
  });
}

/// A model that never learns the end of its turn answers without end.
TEST(RealTemplates, HaveEveryTurnEndInATokenThatCounts) {
  for_each_model([](const Row& row, const Json&, const text::TextAssets& assets) {
    for (size_t i = 0; i < row.ids.size(); ++i) {
      const bool last_of_turn = row.counted[i] && (i + 1 == row.ids.size() || !row.counted[i + 1]);
      EXPECT_TRUE(!last_of_turn || assets.tokenizer.is_special(row.ids[i])) << marked(row, assets);
    }
  });
}

TEST(RealTemplates, HaveOneBeginningOfText) {
  for_each_model([](const Row& row, const Json&, const text::TextAssets& assets) {
    EXPECT_FALSE(row.ids.size() > 1 && assets.bos_id && row.ids[0] == *assets.bos_id &&
                 row.ids[1] == *assets.bos_id)
        << marked(row, assets);
  });
}

}  // namespace
}  // namespace wgrad::data
