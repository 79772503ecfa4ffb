#include "data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "wgrad/error.h"

namespace wgrad::data {
namespace {

std::vector<int64_t> random_lengths(size_t count, int64_t longest) {
  std::mt19937 random(7);
  std::vector<int64_t> lengths(count);
  for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % longest);
  return lengths;
}

using MicroBatches = std::vector<std::vector<int64_t>>;

std::vector<MicroBatches> epoch_of(BatchOrder& order, int64_t epoch) {
  std::vector<MicroBatches> steps;
  for (int64_t i = 0; i < order.steps_per_epoch(); ++i) {
    steps.push_back(order.step(epoch * order.steps_per_epoch() + i));
  }
  return steps;
}

std::vector<int64_t> rows_in(const std::vector<MicroBatches>& steps) {
  std::vector<int64_t> rows;
  for (const MicroBatches& step : steps) {
    for (const auto& batch : step) rows.insert(rows.end(), batch.begin(), batch.end());
  }
  return rows;
}

int64_t tokens_of(const std::vector<int64_t>& batch, const std::vector<int64_t>& lengths) {
  int64_t tokens = 0;
  for (int64_t row : batch) tokens += lengths[static_cast<size_t>(row)];
  return tokens;
}

class Orders : public testing::TestWithParam<BatchOptions> {};

TEST_P(Orders, HoldEveryRowOnceAnEpochWithinTheBound) {
  for (size_t count : {1u, 2u, 7u, 64u, 1009u}) {
    const std::vector<int64_t> lengths = random_lengths(count, GetParam().max_seq_len);
    BatchOrder order(lengths, GetParam());
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<MicroBatches> steps = epoch_of(order, epoch);
      std::vector<int64_t> rows = rows_in(steps);
      std::sort(rows.begin(), rows.end());
      EXPECT_EQ(rows, all);
      for (size_t i = 0; i < steps.size(); ++i) {
        const int64_t size = static_cast<int64_t>(steps[i].size());
        EXPECT_TRUE(i + 1 < steps.size() ? size == GetParam().grad_accum
                                         : size >= 1 && size <= GetParam().grad_accum);
        for (const auto& batch : steps[i]) {
          EXPECT_FALSE(batch.empty());
          EXPECT_LE(tokens_of(batch, lengths), order.most_tokens());
          EXPECT_LE(tokens_of(batch, lengths), GetParam().batch_size * GetParam().max_seq_len);
          if (!GetParam().packing) {
            EXPECT_LE(static_cast<int64_t>(batch.size()), GetParam().batch_size);
          }
        }
      }
    }
  }
}

TEST_P(Orders, AreAFunctionOfSeedAndEpoch) {
  const std::vector<int64_t> rows = random_lengths(257, GetParam().max_seq_len);
  BatchOrder order(rows, GetParam());
  BatchOrder same(rows, GetParam());
  const auto third = epoch_of(order, 3);
  EXPECT_EQ(epoch_of(same, 3), third) << "whatever was asked before";
  const auto first = epoch_of(order, 0);
  EXPECT_EQ(epoch_of(order, 3), third);
  BatchOptions other = GetParam();
  other.seed += 1;
  BatchOrder reseeded(rows, other);
  if (GetParam().shuffle) {
    EXPECT_NE(first, third);
    EXPECT_NE(epoch_of(reseeded, 0), first);
  } else {
    EXPECT_EQ(first, third);
    EXPECT_EQ(epoch_of(reseeded, 0), first);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Orders,
                         testing::Values(BatchOptions{1, 1, false, 64, true, 0},
                                         BatchOptions{4, 3, false, 64, true, 5},
                                         BatchOptions{4, 3, false, 64, false, 5},
                                         BatchOptions{4, 1, true, 64, true, 0},
                                         BatchOptions{1, 5, true, 64, true, UINT64_MAX},
                                         BatchOptions{3, 2, true, 33, false, 0},
                                         BatchOptions{5000, 7, false, 9, true, 1}));

TEST(BatchOrder, KeepsTheFilesOrderWithoutShuffle) {
  BatchOrder order({5, 1, 9, 2, 7},
                   {.batch_size = 2, .grad_accum = 2, .max_seq_len = 9, .shuffle = false});
  EXPECT_EQ(order.steps_per_epoch(), 2);
  EXPECT_EQ(order.step(0), (MicroBatches{{0, 1}, {2, 3}}));
  EXPECT_EQ(order.step(1), (MicroBatches{{4}}));
  EXPECT_EQ(order.step(2), order.step(0));
  EXPECT_EQ(order.most_tokens(), 16) << "9 and 7 could meet in a shuffled epoch";
}

TEST(BatchOrder, TheBoundIsReachedByTheLongestRows) {
  const std::vector<int64_t> lengths = {3, 8, 8, 1};
  BatchOrder order(lengths, {.batch_size = 2, .max_seq_len = 8});
  int64_t most = 0;
  for (int64_t epoch = 0; epoch < 64; ++epoch) {
    for (const MicroBatches& step : epoch_of(order, epoch)) {
      for (const auto& batch : step) most = std::max(most, tokens_of(batch, lengths));
    }
  }
  EXPECT_EQ(order.most_tokens(), 16);
  EXPECT_EQ(most, 16) << "64 epochs without this pair have a chance of (2/3)^64";
}

TEST(Packing, PutsEachRowWhereItFitsBest) {
  BatchOrder order({6, 3, 5, 4, 2},
                   {.batch_size = 1, .packing = true, .max_seq_len = 10, .shuffle = false});
  // 6 and 5 open bins, 4 fills the first, 3 and 2 the second.
  EXPECT_EQ(order.step(0), (MicroBatches{{0, 3}}));
  EXPECT_EQ(order.step(1), (MicroBatches{{1, 2, 4}}));
  EXPECT_EQ(order.steps_per_epoch(), 2);
  EXPECT_EQ(order.most_tokens(), 10);
}

TEST(Packing, NeedsAtMostElevenNinthsOfTheFewestBins) {
  // The worst case of best fit decreasing (Johnson 1974), against the bound that tokens give.
  const std::vector<int64_t> lengths = random_lengths(4001, 100);
  BatchOrder order(lengths, {.batch_size = 2, .packing = true, .max_seq_len = 100});
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t fewest = (tokens + 199) / 200;
  EXPECT_LE(order.steps_per_epoch(), (11 * fewest + 8) / 9 + 1);
}

TEST(Packing, KeepsTheRowsOfAMicroBatchNearEachOtherInAnOrderedFile) {
  constexpr int64_t kWindow = 8192;
  const std::vector<int64_t> lengths = random_lengths(3 * kWindow + 5, 100);
  const auto spread = [&](bool shuffle) {
    BatchOrder order(lengths,
                     {.batch_size = 2, .packing = true, .max_seq_len = 100, .shuffle = shuffle});
    int64_t most = 0;
    for (const MicroBatches& step : epoch_of(order, 0)) {
      const auto [first, last] = std::ranges::minmax(step[0]);
      most = std::max(most, last - first);
      EXPECT_TRUE(shuffle || first / kWindow == last / kWindow);
    }
    return most;
  };
  EXPECT_LT(spread(false), kWindow);
  EXPECT_GT(spread(true), kWindow) << "the seed's order mixes rows from everywhere";
}

TEST(Packing, MixesRowsAnewWithAnotherSeedOnly) {
  const std::vector<int64_t> lengths(1000, 3);
  const auto bins = [&](uint64_t seed, int64_t epoch) {
    BatchOrder order(lengths, {.batch_size = 1, .packing = true, .max_seq_len = 9, .seed = seed});
    std::vector<std::vector<int64_t>> all;
    for (const MicroBatches& step : epoch_of(order, epoch)) all.push_back(step[0]);
    std::ranges::sort(all);
    return all;
  };
  EXPECT_EQ(bins(1, 0), bins(1, 2)) << "steps an epoch stay the same";
  EXPECT_NE(bins(1, 0), bins(2, 0));
}

TEST(Packing, GivesARowBeyondTheCapacityItsOwnBin) {
  BatchOrder order({50, 3, 4}, {.batch_size = 1, .packing = true, .max_seq_len = 10});
  EXPECT_EQ(order.steps_per_epoch(), 2);
  EXPECT_EQ(order.most_tokens(), 50);
}

TEST(Packing, TakesAnyCapacity) {
  BatchOrder order({5, 6}, {.batch_size = INT64_MAX, .packing = true, .max_seq_len = INT64_MAX});
  EXPECT_EQ(order.steps_per_epoch(), 1);
  BatchOrder large({5, 6}, {.batch_size = INT64_MAX, .grad_accum = INT64_MAX});
  EXPECT_EQ(large.steps_per_epoch(), 1);
  EXPECT_EQ(large.step(5).size(), 1u);
}

TEST(BatchOrder, RefusesWhatCannotBeOrdered) {
  EXPECT_THROW(BatchOrder({}, BatchOptions{}), Error);
  EXPECT_THROW(BatchOrder({1}, {.batch_size = 0}), Error);
  EXPECT_THROW(BatchOrder({1}, {.grad_accum = -1}), Error);
}

TEST(BatchOrder, OrdersAMillionRows) {
  const std::vector<int64_t> rows(1000000, 3);
  for (bool packing : {false, true}) {
    BatchOrder order(rows, {.batch_size = 4, .packing = packing, .max_seq_len = 16});
    EXPECT_FALSE(order.step(order.steps_per_epoch() - 1).empty());
  }
}

}  // namespace
}  // namespace wgrad::data
