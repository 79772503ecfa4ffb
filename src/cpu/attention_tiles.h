#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/attention.h"
#include "cpu/tile_product.h"

/// What both directions of attention share: which keys a query sees, how queries are cut into
/// blocks, and how blocks and tiles are packed.
namespace wgrad::cpu {

/// The keys [begin, end) that query i sees.
struct KeyRange {
  int64_t begin;
  int64_t end;
};

inline KeyRange keys_of(const AttentionShape& shape, const uint32_t* row_begin, int64_t i) {
  const int64_t end = i + shape.query_offset + 1;
  const int64_t window_begin = shape.window > 0 ? end - shape.window : 0;
  return {std::max({static_cast<int64_t>(row_begin[i]), window_begin, int64_t{0}}), end};
}

/// Where the vectors of one query head, and of the key-value head it reads, lie.
struct HeadLayout {
  HeadLayout(const AttentionShape& shape, int64_t head)
      : d(shape.head_dim),
        q_row(shape.query_heads * d),
        kv_row(shape.kv_heads * d),
        q_column(head * d),
        kv_column(head / (shape.query_heads / shape.kv_heads) * d) {}

  int64_t q(int64_t i) const { return i * q_row + q_column; }
  int64_t kv(int64_t j) const { return j * kv_row + kv_column; }

  int64_t d, q_row, kv_row, q_column, kv_column;
};

/// Keys of a tile.
inline constexpr int64_t kKeyTile = 64;
/// Rows that a block of queries aims at: its tokens times the query heads of one key-value head.
inline constexpr int64_t kBlockRows = 96;

/// Consecutive queries [first, first + count) that are worked on together.
struct QueryBlock {
  int64_t first;
  int64_t count;
};

/// Consecutive queries whose keys no query outside of them sees, so that they can be worked on
/// apart; a padding-free batch has one a row.
struct Segment {
  int64_t first_query;
  int64_t last_query;  // inclusive
  KeyRange keys;
};

std::vector<Segment> attention_segments(const AttentionShape& shape, const uint32_t* row_begin);

/// How many tokens a block of queries has, but for a segment's last.
inline int64_t block_tokens(const AttentionShape& shape) {
  return std::max<int64_t>(kBlockRows / (shape.query_heads / shape.kv_heads), 1);
}

/// Cuts a segment into blocks of queries.
std::vector<QueryBlock> query_blocks(const AttentionShape& shape, const Segment& segment);

/// A block's vectors of the query heads of one key-value head as consecutive rows (token, head) of
/// `padded_columns(d)` floats, times `factor`; padding is zero.
void pack_query_rows(const AttentionShape& shape, const float* q, int64_t kv_head,
                     const QueryBlock& block, float factor, float* packed);

/// Keys or values [begin, begin + count) of one head as rows of `padded_columns(d)` floats.
void pack_key_rows(const AttentionShape& shape, const float* k, int64_t kv_head, int64_t begin,
                   int64_t count, float factor, float* packed);

/// The same transposed: d rows of kKeyTile floats, zero from `count` on.
void pack_key_columns(const AttentionShape& shape, const float* k, int64_t kv_head, int64_t begin,
                      int64_t count, float* packed);

/// Columns of a tile; 32 bits wide like the scores, so that comparisons stay in vectors.
struct ColumnRange {
  int32_t begin;
  int32_t end;
};

/// The columns of the tile beginning at key `tile` that a query with `keys` sees.
inline ColumnRange seen_columns(const KeyRange& keys, int64_t tile) {
  return {static_cast<int32_t>(std::clamp<int64_t>(keys.begin - tile, 0, kKeyTile)),
          static_cast<int32_t>(std::clamp<int64_t>(keys.end - tile, 0, kKeyTile))};
}

/// The f32 versions of attention_forward and attention_backward.
void attention_forward_f32(const AttentionShape& shape, const float* q, const float* k,
                           const float* v, const uint32_t* row_begin, float* out, float* logsumexp);
void attention_backward_f32(const AttentionShape& shape, const float* q, const float* k,
                            const float* v, const uint32_t* row_begin, const float* out,
                            const float* logsumexp, const float* grad_out, float* grad_q,
                            float* grad_k, float* grad_v);

}  // namespace wgrad::cpu
