#include "model/rope.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/json.h"
#include "model/config.h"
#include "model/rope_tables.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

TEST(RopeTest, FrequenciesAreThoseOfTransformers) {
  const nlohmann::json entries = io::read_json_file(data_folder() / "rope.json");
  ASSERT_GT(entries.size(), 10u);
  for (const nlohmann::json& entry : entries) {
    SCOPED_TRACE(entry.at("config").at("rope_scaling").dump());
    const RopeConfig rope = parse_config(entry.at("config"), "config.json").ropes[0];
    const auto expected = entry.at("inverse_frequencies").get<std::vector<double>>();
    const auto seen = rope_inverse_frequencies(rope, entry.at("row_length"));
    ASSERT_EQ(seen.size(), expected.size());
    // transformers computes in f32: a few roundings, of the exponent too, whose error the logarithm
    // of the base (up to 14) multiplies.
    for (size_t i = 0; i < seen.size(); ++i) {
      EXPECT_NEAR(seen[i], expected[i], 20 * 0x1p-24 * expected[i]) << i;
    }
    EXPECT_NEAR(rope.attention_factor, entry.at("attention_factor"), 1e-12);
  }
}

std::vector<std::vector<uint32_t>> ids_of(const std::vector<size_t>& lengths) {
  std::vector<std::vector<uint32_t>> ids;
  for (const size_t n : lengths) ids.emplace_back(n, 3u);
  return ids;
}

/// What the table holds for each token of rows of these lengths.
void expect_covers(RopeTable& table, const RopeConfig& rope, const std::vector<size_t>& lengths) {
  Context& ctx = context(Device::kCpu);
  const auto ids = ids_of(lengths);
  std::vector<Row> rows;
  for (const auto& row : ids) rows.push_back({row, {}});
  const Batch batch = make_batch(ctx, rows, 16);
  const RopeView view = table.cover(ctx, batch);
  const auto values = ctx.read<float>(view.table);
  const auto places = ctx.read<uint32_t>(view.places);
  size_t token = 0;
  for (const size_t length : lengths) {
    std::vector<float> expected;
    append_rope_table(rope, static_cast<int64_t>(length), static_cast<int64_t>(length), expected);
    const auto width = static_cast<size_t>(rope.rotary_dim);
    for (size_t t = 0; t < length; ++t, ++token) {
      const std::vector<float> seen(
          values.begin() + static_cast<long>(places[token] * width),
          values.begin() + static_cast<long>((places[token] + 1) * width));
      EXPECT_EQ(seen, std::vector<float>(expected.begin() + static_cast<long>(t * width),
                                         expected.begin() + static_cast<long>((t + 1) * width)))
          << "row of " << length << ", token " << t;
    }
  }
}

TEST(RopeTest, ATokenHasTheFrequenciesOfItsRow) {
  RopeConfig dynamic = {.scaling = RopeScaling::kDynamic, .factor = 4, .rotary_dim = 4};
  dynamic.original_max_positions = 6;
  RopeConfig longrope = dynamic;
  longrope.scaling = RopeScaling::kLongRope;
  longrope.short_factors = {1.0, 1.5};
  longrope.long_factors = {1.0, 3.0};
  const RopeConfig plain = {.rotary_dim = 4};
  for (const RopeConfig& rope : {plain, dynamic, longrope}) {
    for (const int64_t positions : {0, 5, 9}) {
      RopeTable table(context(Device::kCpu), rope, positions, 24);
      expect_covers(table, rope, {3, 9, 6});
      expect_covers(table, rope, {2});
      expect_covers(table, rope, {7, 24, 9, 7, 1});
      expect_covers(table, rope, {9});
    }
  }
}

}  // namespace
}  // namespace wgrad::model::testing
