#include "cpu/attention_tiles.h"

namespace wgrad::cpu {

std::vector<Segment> attention_segments(const AttentionShape& shape, const uint32_t* row_begin) {
  std::vector<Segment> segments;
  for (int64_t i = 0; i < shape.queries; ++i) {
    const KeyRange keys = keys_of(shape, row_begin, i);
    // Earlier queries see keys before this query's own alone.
    if (segments.empty() || keys.begin >= i + shape.query_offset) {
      segments.push_back({i, i, keys});
    } else {
      Segment& segment = segments.back();
      segment.last_query = i;
      segment.keys = {std::min(segment.keys.begin, keys.begin), keys.end};
    }
  }
  return segments;
}

std::vector<QueryBlock> query_blocks(const AttentionShape& shape, const Segment& segment) {
  const int64_t tokens = block_tokens(shape);
  std::vector<QueryBlock> blocks;
  for (int64_t i = segment.first_query; i <= segment.last_query; i += tokens) {
    blocks.push_back({i, std::min(tokens, segment.last_query + 1 - i)});
  }
  return blocks;
}

void pack_query_rows(const AttentionShape& shape, const float* q, int64_t kv_head,
                     const QueryBlock& block, float factor, float* packed) {
  const int64_t d = shape.head_dim;
  const int64_t group = shape.query_heads / shape.kv_heads;
  const int64_t width = padded_columns(d);
  for (int64_t i = 0; i < block.count; ++i) {
    const float* heads = q + ((block.first + i) * shape.query_heads + kv_head * group) * d;
    for (int64_t g = 0; g < group; ++g, packed += width) {
      for (int64_t e = 0; e < d; ++e) packed[e] = factor * heads[g * d + e];
      std::fill(packed + d, packed + width, 0.0f);
    }
  }
}

void pack_key_rows(const AttentionShape& shape, const float* k, int64_t kv_head, int64_t begin,
                   int64_t count, float factor, float* packed) {
  const int64_t d = shape.head_dim;
  const int64_t width = padded_columns(d);
  for (int64_t j = 0; j < count; ++j, packed += width) {
    const float* row = k + ((begin + j) * shape.kv_heads + kv_head) * d;
    for (int64_t e = 0; e < d; ++e) packed[e] = factor * row[e];
    std::fill(packed + d, packed + width, 0.0f);
  }
}

void pack_key_columns(const AttentionShape& shape, const float* k, int64_t kv_head, int64_t begin,
                      int64_t count, float* packed) {
  const int64_t d = shape.head_dim;
  const int64_t step = shape.kv_heads * d;
  const float* first = k + (begin * shape.kv_heads + kv_head) * d;
  for (int64_t e = 0; e < d; ++e, packed += kKeyTile) {
    for (int64_t j = 0; j < count; ++j) packed[j] = first[j * step + e];
    std::fill(packed + count, packed + kKeyTile, 0.0f);
  }
}

}  // namespace wgrad::cpu
