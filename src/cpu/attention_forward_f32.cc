#include <cmath>

#include "cpu/attention_tiles.h"
#include "cpu/parallel.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

/// Below every score, finite.
constexpr float kNoScore = -1e30f;

/// A row's softmax so far.
struct RowState {
  float max;  // of the scores
  float sum;  // of exp(score - max)
};

/// One thread's working memory: a block of queries against a tile of keys.
struct Scratch {
  explicit Scratch(const AttentionShape& shape)
      : rows(std::max(kBlockRows, shape.query_heads / shape.kv_heads)),
        width(padded_columns(shape.head_dim)),
        q(static_cast<size_t>(rows * width)),
        keys(static_cast<size_t>(shape.head_dim * kKeyTile)),
        values(static_cast<size_t>(kKeyTile * width)),
        scores(static_cast<size_t>(rows * kKeyTile)),
        out(static_cast<size_t>(rows * width)),
        state(static_cast<size_t>(rows)) {}

  int64_t rows, width;
  std::vector<float> q, keys, values, scores, out;
  std::vector<RowState> state;
};

WGRAD_INLINE void cap_row(float cap, float* scores, int32_t columns) {
#pragma omp simd
  for (int32_t j = 0; j < columns; ++j) scores[j] = cap * tanh_f32(scores[j] / cap);
}

/// Turns a row's scores of one tile into exp(score - max) in place, zero outside of what is seen,
/// and brings the row of `out` up to date with a new maximum.
WGRAD_INLINE RowState softmax_row(float* scores, int32_t columns, ColumnRange seen,
                                  const RowState& before, float* out, int64_t width) {
  float tile_max = kNoScore;
#pragma omp simd reduction(max : tile_max)
  for (int32_t j = 0; j < columns; ++j) {
    const float score = j >= seen.begin && j < seen.end ? scores[j] : kNoScore;
    tile_max = score > tile_max ? score : tile_max;
  }
  float max = before.max;
  float sum = before.sum;
  if (tile_max > max) {
    const float factor = exp_f32(max - tile_max);
    max = tile_max;
    sum *= factor;
#pragma omp simd
    for (int64_t e = 0; e < width; ++e) out[e] *= factor;
  }
#pragma omp simd reduction(+ : sum)
  for (int32_t j = 0; j < columns; ++j) {
    const float p = j >= seen.begin && j < seen.end ? exp_f32(scores[j] - max) : 0.0f;
    scores[j] = p;
    sum += p;
  }
  return {max, sum};
}

/// All rows of a block; `columns` is how much of the tile any of them sees.
WGRAD_MULTIVERSION
void softmax_block(const AttentionShape& shape, const uint32_t* row_begin, QueryBlock block,
                   int64_t tile, int32_t columns, float* scores, RowState* state, float* out,
                   int64_t width) {
  const int64_t group = shape.query_heads / shape.kv_heads;
  for (int64_t i = 0; i < block.count; ++i) {
    const ColumnRange seen = seen_columns(keys_of(shape, row_begin, block.first + i), tile);
    for (int64_t r = i * group; r < (i + 1) * group; ++r) {
      float* row = scores + r * kKeyTile;
      if (seen.begin >= seen.end) {
        std::fill(row, row + columns, 0.0f);
      } else {
        if (shape.soft_cap > 0) cap_row(static_cast<float>(shape.soft_cap), row, columns);
        state[r] = softmax_row(row, columns, seen, state[r], out + r * width, width);
      }
    }
  }
}

void store_block(const AttentionShape& shape, QueryBlock block, int64_t kv_head,
                 const Scratch& scratch, float* out, float* logsumexp) {
  const int64_t group = shape.query_heads / shape.kv_heads;
  for (int64_t i = 0; i < block.count; ++i) {
    for (int64_t g = 0; g < group; ++g) {
      const size_t r = static_cast<size_t>(i * group + g);
      const int64_t row = (block.first + i) * shape.query_heads + kv_head * group + g;
      const float inverse = 1.0f / scratch.state[r].sum;
      const float* from = scratch.out.data() + static_cast<int64_t>(r) * scratch.width;
      float* to = out + row * shape.head_dim;
      for (int64_t e = 0; e < shape.head_dim; ++e) to[e] = from[e] * inverse;
      logsumexp[row] = static_cast<float>(static_cast<double>(scratch.state[r].max) +
                                          std::log(static_cast<double>(scratch.state[r].sum)));
    }
  }
}

void forward_block(const AttentionShape& shape, const float* q, const float* k, const float* v,
                   const uint32_t* row_begin, QueryBlock block, int64_t kv_head, Scratch& scratch,
                   float* out, float* logsumexp) {
  const int64_t width = scratch.width;
  const int64_t rows = block.count * (shape.query_heads / shape.kv_heads);
  pack_query_rows(shape, q, kv_head, block, static_cast<float>(shape.scale), scratch.q.data());
  std::fill(scratch.out.begin(), scratch.out.end(), 0.0f);
  std::fill(scratch.state.begin(), scratch.state.end(), RowState{kNoScore, 0.0f});
  int64_t begin = keys_of(shape, row_begin, block.first).begin;
  for (int64_t i = 1; i < block.count; ++i) {
    begin = std::min(begin, keys_of(shape, row_begin, block.first + i).begin);
  }
  const int64_t end = keys_of(shape, row_begin, block.first + block.count - 1).end;
  for (int64_t tile = begin; tile < end; tile += kKeyTile) {
    const int64_t count = std::min(kKeyTile, end - tile);
    const int64_t columns = padded_columns(count);
    pack_key_columns(shape, k, kv_head, tile, count, scratch.keys.data());
    pack_key_rows(shape, v, kv_head, tile, count, 1.0f, scratch.values.data());
    tile_product(rows, columns, shape.head_dim, scratch.q.data(), width, 1, scratch.keys.data(),
                 kKeyTile, scratch.scores.data(), kKeyTile, false);
    softmax_block(shape, row_begin, block, tile, static_cast<int32_t>(columns),
                  scratch.scores.data(), scratch.state.data(), scratch.out.data(), width);
    tile_product(rows, width, count, scratch.scores.data(), kKeyTile, 1, scratch.values.data(),
                 width, scratch.out.data(), width, true);
  }
  store_block(shape, block, kv_head, scratch, out, logsumexp);
}

}  // namespace

void attention_forward_f32(const AttentionShape& shape, const float* q, const float* k,
                           const float* v, const uint32_t* row_begin, float* out,
                           float* logsumexp) {
  std::vector<QueryBlock> blocks;
  for (const Segment& segment : attention_segments(shape, row_begin)) {
    const std::vector<QueryBlock> more = query_blocks(shape, segment);
    blocks.insert(blocks.end(), more.begin(), more.end());
  }
  const int64_t count = static_cast<int64_t>(blocks.size());
  const int64_t work = kBlockRows * kKeyTile * shape.head_dim;
  parallel_for_dynamic(
      count * shape.kv_heads, work, [&] { return Scratch(shape); },
      [&](int64_t item, Scratch& scratch) {
        // Later blocks see more keys: begin with them, so that no thread ends with a long one.
        const QueryBlock block = blocks[static_cast<size_t>(count - 1 - item / shape.kv_heads)];
        forward_block(shape, q, k, v, row_begin, block, item % shape.kv_heads, scratch, out,
                      logsumexp);
      });
}

}  // namespace wgrad::cpu
