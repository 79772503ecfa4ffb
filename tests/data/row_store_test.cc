#include "data/row_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<Row> random_rows(size_t count) {
  std::mt19937 random(3);
  std::vector<Row> rows(count);
  for (Row& row : rows) {
    row.ids.resize(random() % 50);
    for (uint32_t& id : row.ids) id = random() >> 1;
    for (size_t i = 0; i < row.ids.size(); ++i) row.counted.push_back(random() % 2);
  }
  return rows;
}

void expect_rows(const RowStore& store, const std::vector<Row>& rows) {
  ASSERT_EQ(store.size(), static_cast<int64_t>(rows.size()));
  for (size_t i = rows.size(); i-- > 0;) {
    const Row row = store.row(static_cast<int64_t>(i));
    ASSERT_EQ(row.ids, rows[i].ids) << i;
    ASSERT_EQ(row.counted, rows[i].counted) << i;
    ASSERT_EQ(store.lengths()[i], rows[i].tokens());
  }
}

TEST(RowStore, GivesRowsBackWhetherInMemoryOrInItsFile) {
  const std::vector<Row> rows = random_rows(300);
  for (const size_t memory : {size_t{0}, size_t{4}, size_t{1000}, size_t{1} << 20}) {
    RowStore store(memory);
    for (const Row& row : rows) store.add(row);
    expect_rows(store, rows);
  }
}

TEST(RowStore, LeavesNoFileBehind) {
  const TemporaryFolder folder;
  const std::string before = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "";
  setenv("TMPDIR", folder.path().c_str(), 1);
  RowStore store(0);
  store.add(random_rows(5)[1]);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  setenv("TMPDIR", (folder.path() / "nowhere").c_str(), 1);
  RowStore lost(0);
  std::string failure;
  try {
    lost.add(random_rows(5)[1]);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    failure = error.what();
  }
  before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
  EXPECT_THAT(failure, AllOf(HasSubstr("nowhere"), HasSubstr("No such file"), HasSubstr("TMPDIR")));
}

TEST(RowStore, RefusesAnIdThatNeedsTheBitOfTheLabel) {
  RowStore store;
  EXPECT_THAT(input_error_of([&] {
                store.add({.ids = {1, 0x80000000u}, .counted = {0, 0}, .where = "d.jsonl:7"});
              }),
              AllOf(HasSubstr("d.jsonl:7: token 1"), HasSubstr("2147483648")));
}

}  // namespace
}  // namespace wgrad::data
