// What every attention kernel begins with. The generated prelude before it gives HEAD_DIM, UNITS
// (vectors of 4 a head, the last one filled up with zeros), ROWS, VALUE_LANES, VALUE_UNITS, BATCH, and
// load_NAME(cell, unit) and store_NAME(cell, unit, value) for the kernel's tensors, where
// cell = token * heads + head.

const LOWEST: f32 = -1e38;  // below every score: no infinities
const LN_2: f32 = 0.6931471805599453;
const VALUE_ROW_STEP: u32 = 256u / VALUE_LANES;

// Mirrored by AttentionParams in ops/attention.cc. Tokens count from `origin`: a dispatch covers
// whole rows of the batch, and those before first_token belong to another dispatch.
struct Params {
  queries: u32,
  keys: u32,
  query_offset: u32,
  window: u32,
  heads: u32,
  kv_heads: u32,
  groups: u32,
  first_token: u32,
  origin: u32,
  scale: f32,
  scale_log2e: f32,
  splits: u32,
  first_kv_head: u32,  // a dispatch of the gradients covers kv_head_count heads of keys from here on
  kv_head_count: u32,
  kept_tiles: u32,     // see attention_matrix_text.h
  one: u32,  // 1: a factor of loop bounds that compilers then do not unroll
}

fn is_own(token: u32) -> bool { return token >= params.first_token && token < params.queries; }

// A run of tokens of one head; tokens past `last` read as `last`, so that no load leaves the tensor.
struct Tokens {
  first: u32,
  last: u32,
  heads: u32,
  head: u32,
}

fn cell(tokens: Tokens, i: u32) -> u32 {
  return min(tokens.first + i, tokens.last) * tokens.heads + tokens.head;
}
// The query's place in `statistics`, where those of one head lie together.
fn statistic_at(queries: Tokens, i: u32) -> u32 {
  return queries.head * params.queries + min(queries.first + i, queries.last);
}
