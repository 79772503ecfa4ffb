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

TEST(RealTemplates, GiveTheIdsAndCountedTokensOfTransformers) {
  const Json goldens = read_json("data/real_templates.json");
  const Json& conversations = goldens["conversations"];
  int compared = 0;
  for (const Json& model : goldens["models"]) {
    text::TextAssets assets =
        load({.tokenizer = model["tokenizer"].get<std::string>(),
              .chat_template =
                  read_text(fs::path(WGRAD_TEST_DATA) / model["template"].get<std::string>()),
              .added_tokens = model["added_tokens"],
              .config = model["config"],
              .stop_ids = model["stop_ids"]});
    assets.chat_template->set_now(goldens["now"].get<int64_t>());
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}, {}", model["name"].dump(), conversations[i].dump()));
      const Json& golden = model["rows"][i];
      if (golden.is_null()) {
        EXPECT_THROW(encode_one(conversations[i], assets), Error);
        continue;
      }
      try {
        const Row row = encode_one(conversations[i], assets);
        EXPECT_EQ(hash_of(row), golden["hash"].get<std::string>())
            << marked(row, assets) << "\ncounted should be " << golden["counted"];
        ++compared;
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  EXPECT_GT(compared, 300) << "most rows of most models are taken";
}

}  // namespace
}  // namespace wgrad::data
