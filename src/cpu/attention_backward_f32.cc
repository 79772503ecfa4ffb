#include "cpu/attention_tiles.h"
#include "cpu/parallel.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

/// Long segments are cut into this many chunks of keys, so that threads have enough to share. Each
/// chunk after the first has its own gradient of the queries, added in order at the end.
constexpr int64_t kMostChunks = 4;
constexpr int64_t kShortestChunk = 4 * kKeyTile;

/// The keys [begin, end) of a segment, with every block of queries of which one sees one of them.
struct Chunk {
  size_t segment;
  int64_t begin;
  int64_t end;
  int64_t first_query;
  std::vector<float> grad_q;  // [queries from first_query on, query heads, d]; empty: the output

  float* grad_q_base(const AttentionShape& shape, float* output) {
    if (grad_q.empty()) return output;
    return grad_q.data() - first_query * shape.query_heads * shape.head_dim;
  }
};

std::vector<Chunk> key_chunks(const AttentionShape& shape, const std::vector<Segment>& segments) {
  const int64_t tokens = block_tokens(shape);
  std::vector<Chunk> chunks;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const int64_t keys = segment.keys.end - segment.keys.begin;
    const int64_t length =
        std::max(ceil_div(ceil_div(keys, kMostChunks), kKeyTile) * kKeyTile, kShortestChunk);
    for (int64_t begin = segment.keys.begin; begin < segment.keys.end; begin += length) {
      Chunk chunk;
      chunk.segment = s;
      chunk.begin = begin;
      chunk.end = std::min(begin + length, segment.keys.end);
      const int64_t before = std::max<int64_t>(begin - shape.query_offset - segment.first_query, 0);
      chunk.first_query = segment.first_query + before / tokens * tokens;
      if (begin > segment.keys.begin) {
        chunk.grad_q.resize(static_cast<size_t>((segment.last_query + 1 - chunk.first_query) *
                                                shape.query_heads * shape.head_dim));
      }
      chunks.push_back(std::move(chunk));
    }
  }
  return chunks;
}

/// One thread's working memory.
struct Scratch {
  explicit Scratch(const AttentionShape& shape)
      : rows(std::max(kBlockRows, shape.query_heads / shape.kv_heads)),
        width(padded_columns(shape.head_dim)),
        q(static_cast<size_t>(rows * width)),
        grad_out(q.size()),
        grad_q(q.size()),
        key_columns(static_cast<size_t>(shape.head_dim * kKeyTile)),
        value_columns(key_columns.size()),
        key_rows(static_cast<size_t>(kKeyTile * width)),
        grad_k(key_rows.size()),
        grad_v(key_rows.size()),
        p(static_cast<size_t>(rows * kKeyTile)),
        grad_s(p.size()) {}

  int64_t rows, width;
  std::vector<float> q, grad_out, grad_q, key_columns, value_columns, key_rows, grad_k, grad_v;
  std::vector<float> p, grad_s;
};

/// The inputs and outputs, as attention_backward names them.
struct Arguments {
  const AttentionShape& shape;
  const float *q, *k, *v;
  const uint32_t* row_begin;
  const float *out, *logsumexp, *grad_out;
  const float* delta;  // [queries, query_heads]: sum(grad_out out)
  float *grad_q, *grad_k, *grad_v;
};

/// A row of softmax_gradient_block; the cap's slope is 1 - tanh^2.
template <bool kCapped>
WGRAD_INLINE void gradient_row(float cap, float lse, float delta, ColumnRange seen, int32_t columns,
                               float* p, float* grad_s) {
#pragma omp simd
  for (int32_t j = 0; j < columns; ++j) {
    const float t = kCapped ? tanh_f32(p[j] / cap) : 0.0f;
    const float score = kCapped ? cap * t : p[j];
    const float value = j >= seen.begin && j < seen.end ? exp_f32(score - lse) : 0.0f;
    const float grad = value * (grad_s[j] - delta);
    p[j] = value;
    grad_s[j] = kCapped ? grad * ((1.0f - t) * (1.0f + t)) : grad;
  }
}

/// Scores are capped and become p = exp(s - logsumexp), grad_p becomes grad_s = p (grad_p - delta),
/// times the cap's slope.
WGRAD_MULTIVERSION
void softmax_gradient_block(const AttentionShape& shape, const uint32_t* row_begin,
                            const float* logsumexp, const float* delta, QueryBlock block,
                            int64_t kv_head, int64_t tile, int32_t columns, float* p,
                            float* grad_s) {
  const int64_t group = shape.query_heads / shape.kv_heads;
  for (int64_t i = 0; i < block.count; ++i) {
    const ColumnRange seen = seen_columns(keys_of(shape, row_begin, block.first + i), tile);
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = (block.first + i) * shape.query_heads + kv_head * group + g;
      const float lse = logsumexp[head];
      float* p_row = p + (i * group + g) * kKeyTile;
      float* grad_row = grad_s + (i * group + g) * kKeyTile;
      if (shape.soft_cap > 0) {
        gradient_row<true>(static_cast<float>(shape.soft_cap), lse, delta[head], seen, columns,
                           p_row, grad_row);
      } else {
        gradient_row<false>(0.0f, lse, delta[head], seen, columns, p_row, grad_row);
      }
    }
  }
}

void add_query_gradient(const AttentionShape& shape, QueryBlock block, int64_t kv_head,
                        const Scratch& scratch, float* grad_q) {
  const int64_t group = shape.query_heads / shape.kv_heads;
  for (int64_t r = 0; r < block.count * group; ++r) {
    const int64_t row = (block.first + r / group) * shape.query_heads + kv_head * group + r % group;
    const float* from = scratch.grad_q.data() + r * scratch.width;
    float* to = grad_q + row * shape.head_dim;
    for (int64_t e = 0; e < shape.head_dim; ++e) to[e] += from[e];
  }
}

/// One block of queries against the tile of keys [tile, tile + count) that is packed in `scratch`.
void backward_tile(const Arguments& args, QueryBlock block, int64_t kv_head, int64_t tile,
                   int64_t count, float* grad_q, Scratch& s) {
  const AttentionShape& shape = args.shape;
  const int64_t width = s.width;
  const int64_t rows = block.count * (shape.query_heads / shape.kv_heads);
  const int64_t last_seen = block.first + block.count + shape.query_offset - tile;
  const int64_t seen = std::min(count, last_seen);
  const int64_t columns = padded_columns(seen);
  pack_query_rows(shape, args.q, kv_head, block, static_cast<float>(shape.scale), s.q.data());
  pack_query_rows(shape, args.grad_out, kv_head, block, 1.0f, s.grad_out.data());
  tile_product(rows, columns, shape.head_dim, s.q.data(), width, 1, s.key_columns.data(), kKeyTile,
               s.p.data(), kKeyTile, false);
  tile_product(rows, columns, shape.head_dim, s.grad_out.data(), width, 1, s.value_columns.data(),
               kKeyTile, s.grad_s.data(), kKeyTile, false);
  softmax_gradient_block(shape, args.row_begin, args.logsumexp, args.delta, block, kv_head, tile,
                         static_cast<int32_t>(columns), s.p.data(), s.grad_s.data());
  tile_product(seen, width, rows, s.p.data(), 1, kKeyTile, s.grad_out.data(), width,
               s.grad_v.data(), width, true);
  tile_product(seen, width, rows, s.grad_s.data(), 1, kKeyTile, s.q.data(), width, s.grad_k.data(),
               width, true);
  tile_product(rows, width, seen, s.grad_s.data(), kKeyTile, 1, s.key_rows.data(), width,
               s.grad_q.data(), width, false);
  add_query_gradient(shape, block, kv_head, s, grad_q);
}

/// Whether any query of the block sees a key of [tile, tile + count).
bool sees(const AttentionShape& shape, const uint32_t* row_begin, QueryBlock block, int64_t tile,
          int64_t count) {
  for (int64_t i = block.first; i < block.first + block.count; ++i) {
    const KeyRange keys = keys_of(shape, row_begin, i);
    if (keys.begin < tile + count && keys.end > tile) return true;
  }
  return false;
}

void backward_chunk(const Arguments& args, const Segment& segment, Chunk& chunk, int64_t kv_head,
                    Scratch& s) {
  const AttentionShape& shape = args.shape;
  const int64_t d = shape.head_dim;
  float* grad_q = chunk.grad_q_base(shape, args.grad_q);
  const std::vector<QueryBlock> blocks = query_blocks(shape, segment);
  for (int64_t tile = chunk.begin; tile < chunk.end; tile += kKeyTile) {
    const int64_t count = std::min(kKeyTile, chunk.end - tile);
    pack_key_columns(shape, args.k, kv_head, tile, count, s.key_columns.data());
    pack_key_columns(shape, args.v, kv_head, tile, count, s.value_columns.data());
    pack_key_rows(shape, args.k, kv_head, tile, count, static_cast<float>(shape.scale),
                  s.key_rows.data());
    std::fill(s.grad_k.begin(), s.grad_k.end(), 0.0f);
    std::fill(s.grad_v.begin(), s.grad_v.end(), 0.0f);
    for (const QueryBlock& block : blocks) {
      if (sees(shape, args.row_begin, block, tile, count)) {
        backward_tile(args, block, kv_head, tile, count, grad_q, s);
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      const int64_t row = ((tile + j) * shape.kv_heads + kv_head) * d;
      std::copy_n(s.grad_k.data() + j * s.width, d, args.grad_k + row);
      std::copy_n(s.grad_v.data() + j * s.width, d, args.grad_v + row);
    }
  }
}

}  // namespace

void attention_backward_f32(const AttentionShape& shape, const float* q, const float* k,
                            const float* v, const uint32_t* row_begin, const float* out,
                            const float* logsumexp, const float* grad_out, float* grad_q,
                            float* grad_k, float* grad_v) {
  const int64_t d = shape.head_dim;
  const int64_t heads = shape.queries * shape.query_heads;
  std::vector<float> delta(static_cast<size_t>(heads));
  parallel_for(heads, 2 * d, [&](int64_t row) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t e = row * d; e < (row + 1) * d; ++e) sum += grad_out[e] * out[e];
    delta[static_cast<size_t>(row)] = sum;
  });
  std::fill(grad_q, grad_q + heads * d, 0.0f);
  std::fill(grad_k, grad_k + shape.keys * shape.kv_heads * d, 0.0f);
  std::fill(grad_v, grad_v + shape.keys * shape.kv_heads * d, 0.0f);
  const std::vector<Segment> segments = attention_segments(shape, row_begin);
  std::vector<Chunk> chunks = key_chunks(shape, segments);
  const Arguments args{shape,        q,      k,      v,     row_begin, out, logsumexp, grad_out,
                       delta.data(), grad_q, grad_k, grad_v};
  parallel_for_dynamic(
      static_cast<int64_t>(chunks.size()) * shape.kv_heads, kBlockRows * kKeyTile * d,
      [&] { return Scratch(shape); },
      [&](int64_t item, Scratch& scratch) {
        Chunk& chunk = chunks[static_cast<size_t>(item / shape.kv_heads)];
        backward_chunk(args, segments[chunk.segment], chunk, item % shape.kv_heads, scratch);
      });
  for (const Chunk& chunk : chunks) {
    const int64_t size = static_cast<int64_t>(chunk.grad_q.size());
    float* to = grad_q + chunk.first_query * shape.query_heads * d;
    parallel_blocks(size, 8192, 1, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) to[e] += chunk.grad_q[static_cast<size_t>(e)];
    });
  }
}

}  // namespace wgrad::cpu
