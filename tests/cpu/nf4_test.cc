#include "cpu/nf4.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "testing.h"
#include "wgrad/error.h"

namespace wgrad::cpu {
namespace {

template <class T>
std::vector<T> golden(const std::string& name) {
  const std::string path = std::string(WGRAD_TEST_DATA) + "/nf4/" + name;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

const char* const kCases[] = {"normal",    "blocks_cross_rows", "odd",
                              "one",       "two_nested_blocks", "table_and_halfway",
                              "zero_block"};

/// A weight quantised twice, and what it views.
struct Quantised {
  explicit Quantised(const std::vector<float>& w) : n(static_cast<int64_t>(w.size())) {
    packed.resize(static_cast<size_t>(nf4_packed_bytes(n)));
    absmax.resize(static_cast<size_t>(nf4_blocks(n)));
    codes.resize(absmax.size());
    nested.resize(static_cast<size_t>(nf4_nested_blocks(n)));
    quantise_nf4(w.data(), n, packed.data(), absmax.data());
    offset = nf4_absmax_offset(absmax.data(), nf4_blocks(n));
    quantise_nf4_absmax(absmax.data(), nf4_blocks(n), offset, codes.data(), nested.data());
  }
  Nf4View plain() const {
    Nf4View view;
    view.packed = packed.data();
    view.absmax = absmax.data();
    return view;
  }
  Nf4View twice() const {
    Nf4View view;
    view.packed = packed.data();
    view.absmax_codes = codes.data();
    view.nested_absmax = nested.data();
    view.offset = offset;
    return view;
  }
  std::vector<float> dequantised(const Nf4View& view) const {
    std::vector<float> out(static_cast<size_t>(n));
    dequantise_nf4(view, 0, n, out.data());
    return out;
  }

  int64_t n;
  std::vector<uint8_t> packed, codes;
  std::vector<float> absmax, nested;
  float offset = 0.0f;
};

TEST(Nf4, CodesAndScalesAreThoseOfBitsandbytesBitForBit) {
  for (const std::string name : kCases) {
    SCOPED_TRACE(name);
    const Quantised q(golden<float>(name + ".w.f32"));
    EXPECT_EQ(q.packed, golden<uint8_t>(name + ".packed.u8"));
    EXPECT_EQ(q.absmax, golden<float>(name + ".absmax.f32"));
    EXPECT_EQ(q.dequantised(q.plain()), golden<float>(name + ".dequantised.f32"));
  }
}

TEST(Nf4, DoubleQuantisationIsThatOfBitsandbytesBitForBit) {
  for (const std::string name : kCases) {
    SCOPED_TRACE(name);
    Quantised q(golden<float>(name + ".w.f32"));
    const float offset = golden<float>(name + ".offset.f32")[0];
    // Torch sums the mean in f32 in an order of its own; ours is the rounded exact mean.
    const double blocks = static_cast<double>(q.absmax.size());
    EXPECT_LE(std::abs(q.offset - offset), blocks * 0.5 * kEpsilon32 * offset);
    q.offset = offset;
    quantise_nf4_absmax(q.absmax.data(), nf4_blocks(q.n), offset, q.codes.data(), q.nested.data());
    EXPECT_EQ(q.codes, golden<uint8_t>(name + ".absmax_codes.u8"));
    EXPECT_EQ(q.nested, golden<float>(name + ".nested_absmax.f32"));
    EXPECT_EQ(q.dequantised(q.twice()), golden<float>(name + ".nested_dequantised.f32"));
  }
}

TEST(Nf4, DynamicMapIsThatOfBitsandbytesBitForBit) {
  const std::array<float, 256>& map = nf4_dynamic_map();
  EXPECT_EQ(std::vector<float>(map.begin(), map.end()), golden<float>("dynamic_map.f32"));
}

TEST(Nf4, TableAndMapAscend) {
  EXPECT_TRUE(std::is_sorted(kNf4Table.begin(), kNf4Table.end(), std::less_equal<float>()));
  const std::array<float, 256>& map = nf4_dynamic_map();
  EXPECT_TRUE(std::is_sorted(map.begin(), map.end(), std::less_equal<float>()));
}

TEST(Nf4, ErrorIsAtMostHalfTheWidestGap) {
  float widest = 0.0f;
  for (size_t i = 0; i + 1 < 16; ++i) widest = std::max(widest, kNf4Table[i + 1] - kNf4Table[i]);
  EXPECT_LE(widest / 2.0f, 0.152f);
  const std::vector<float> w = converted<float>(ten_decades(64 * 100 + 17, 5));
  const Quantised q(w);
  const std::vector<float> out = q.dequantised(q.plain());
  for (size_t i = 0; i < w.size(); ++i) {
    ASSERT_LE(std::abs(out[i] - w[i]), (widest / 2.0f + 2.0f * kEpsilon32) * q.absmax[i / 64]);
  }
}

TEST(Nf4, CodesRoundTrip) {
  const Quantised first(converted<float>(random_values(64 * 33 + 5, 6)));
  const Quantised second(first.dequantised(first.plain()));
  EXPECT_EQ(second.packed, first.packed);
  EXPECT_EQ(second.absmax, first.absmax);
}

TEST(Nf4, AnyRangeOfElementsEqualsThatPartOfTheWhole) {
  const Quantised q(converted<float>(random_values(64 * 5 + 3, 7)));
  const std::vector<float> whole = q.dequantised(q.twice());
  for (int64_t first : {0, 1, 62, 63, 64, 65, 129}) {
    for (int64_t count : {0, 1, 2, 63, 64, 65, 130, 194}) {
      std::vector<float> part(static_cast<size_t>(count));
      dequantise_nf4(q.twice(), first, count, part.data());
      EXPECT_EQ(part, std::vector<float>(whole.begin() + first, whole.begin() + first + count));
    }
  }
}

template <class T>
void expect_product_of_dequantised(MatmulOp op, int64_t m, int64_t out_features,
                                   int64_t in_features, bool accumulate) {
  const Quantised q(converted<float>(random_values(out_features * in_features, 8)));
  const std::vector<T> w = converted<T>(q.dequantised(q.twice()));
  const bool forward = op == MatmulOp::kNT;
  const int64_t k = forward ? in_features : out_features;
  const int64_t n = forward ? out_features : in_features;
  const std::vector<T> a = converted<T>(random_values(m * k, 9));
  std::vector<T> expected = converted<T>(random_values(m * n, 10));
  std::vector<T> c = expected;
  matmul(op, m, n, k, a.data(), k, w.data(), in_features, expected.data(), n, T(0.5), accumulate);
  matmul_nf4(op, m, out_features, in_features, a.data(), k, q.twice(), c.data(), n, T(0.5),
             accumulate);
  // |a| and |w| are below 6 and absmax below 6: k terms, in another order in f32.
  const double unit = std::is_same_v<T, float> ? kEpsilon32 : 0.0;
  const double bound = static_cast<double>(k) * unit * 36.0 * std::sqrt(static_cast<double>(k));
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(c[i]) - static_cast<double>(expected[i])), bound);
  }
}

TEST(Nf4, ProductEqualsThatWithTheDequantisedWeight) {
  for (MatmulOp op : {MatmulOp::kNT, MatmulOp::kNN}) {
    for (bool accumulate : {false, true}) {
      expect_product_of_dequantised<float>(op, 1, 1, 1, accumulate);
      expect_product_of_dequantised<float>(op, 7, 33, 65, accumulate);
      expect_product_of_dequantised<double>(op, 7, 33, 65, accumulate);
      // More rows than are dequantised at a time, with rows of an odd length.
      expect_product_of_dequantised<float>(op, 3, 301, 1001, accumulate);
      expect_product_of_dequantised<double>(op, 3, 301, 1001, accumulate);
    }
  }
}

TEST(Nf4, RefusesTheProductThatWouldBeAWeightGradient) {
  const Quantised q({1.0f});
  float c = 0.0f;
  const float a = 1.0f;
  EXPECT_THROW(matmul_nf4(MatmulOp::kTN, 1, 1, 1, &a, 1, q.plain(), &c, 1), Error);
}

}  // namespace
}  // namespace wgrad::cpu
