// What the attention kernels share, placed before each of them: a 64 x 32 (ROWS x 32) tile of
// products over head_dim, and the product of such a tile with 32 rows of values. 256 invocations.
//
// The kernel's file gives load_row, load_col and load_value, which choose the tensors of product 0 or 1.
//
// A score lane holds rows t / 8 + 32 i and the columns 4 (t % 8) .. + 3 as one vector.
// A value lane holds rows t / VALUE_LANES + i * VALUE_ROW_STEP and units t % VALUE_LANES + j * VALUE_LANES.

const COLS: u32 = 32u;
const CHUNK: u32 = 4u;  // units of head_dim staged at once
const CHUNKS: u32 = (UNITS + CHUNK - 1u) / CHUNK;
const SCORE_ROWS: u32 = ROWS / 32u;
const VALUE_ROWS: u32 = ROWS / VALUE_ROW_STEP;
const STAGE: u32 = 384u;

alias Scores = array<vec4<f32>, SCORE_ROWS>;
alias Values = array<vec4<f32>, VALUE_ROWS * VALUE_UNITS>;

var<workgroup> stage: array<vec4<f32>, STAGE>;
var<workgroup> weights: array<vec4<f32>, ROWS * COLS / 4u>;

// Spreads the four units of a staged row over the banks of workgroup memory.
fn swizzle(row: u32, unit: u32) -> u32 {
  return row * CHUNK + (unit ^ ((row / 2u) % CHUNK));
}

// The last of `products` sums over head_dim of row[i] * col[j]; of two, the first goes to `first`.
// Ends with a barrier: `stage` is free.
fn scores(products: u32, rows: Tokens, cols: Tokens, t: u32, first: ptr<function, Scores>) -> Scores {
  let row = t / CHUNK;
  let unit = t % CHUNK;
  // Column c is staged at (c % 4) * 8 + c / 4: the eight lanes that read together meet eight rows.
  let col_slot = ROWS * CHUNK + swizzle((row % 4u) * 8u + row / 4u, unit);
  let row_slot = swizzle(row, unit);
  let row_cell = cell(rows, row);
  let col_cell = cell(cols, row);
  let steps = CHUNKS * products * params.one;
  var sum = Scores();
  var next_row = vec4<f32>();
  var next_col = vec4<f32>();
  for (var step = 0u; step <= steps; step++) {
    // What the next step needs is under way while this one computes.
    let next_unit = step % CHUNKS * CHUNK + unit;
    let product = step / CHUNKS;
    if (step > 0u) {
      if (row < ROWS) { stage[row_slot] = next_row; }
      if (row < COLS) { stage[col_slot] = next_col; }
    }
    next_row = vec4<f32>();
    next_col = vec4<f32>();
    if (next_unit < UNITS && step < steps) {
      if (row < ROWS) { next_row = load_row(product, row_cell, next_unit); }
      if (row < COLS) { next_col = load_col(product, col_cell, next_unit); }
    }
    if (step == 0u) { continue; }
    workgroupBarrier();
    for (var u = 0u; u < CHUNK * params.one; u++) {
      let c0 = stage[ROWS * CHUNK + swizzle(t % 8u, u)];
      let c1 = stage[ROWS * CHUNK + swizzle(8u + t % 8u, u)];
      let c2 = stage[ROWS * CHUNK + swizzle(16u + t % 8u, u)];
      let c3 = stage[ROWS * CHUNK + swizzle(24u + t % 8u, u)];
      for (var i = 0u; i < SCORE_ROWS; i++) {
        let r = stage[swizzle(t / 8u + 32u * i, u)];
        sum[i] += vec4<f32>(dot(r, c0), dot(r, c1), dot(r, c2), dot(r, c3));
      }
    }
    workgroupBarrier();
    if (step == CHUNKS && products == 2u) {
      *first = sum;
      sum = Scores();
    }
  }
  return sum;
}

// The lane's part of a ROWS x 32 tile goes to `weights`.
fn store_weights(i: u32, t: u32, value: vec4<f32>) {
  weights[(t / 8u + 32u * i) * 8u + t % 8u] = value;
}

// sum += weights * values; the first barrier inside covers store_weights. Ends with a barrier.
fn accumulate(product: u32, cols: Tokens, t: u32, sum: ptr<function, Values>) {
  let lane = t % VALUE_LANES;
  let row = t / VALUE_LANES;
  for (var start = 0u; start < COLS * params.one; start += BATCH) {
    for (var e = t; e < BATCH * UNITS; e += 256u) {
      stage[e] = load_value(product, cell(cols, start + e / UNITS), e % UNITS);
    }
    workgroupBarrier();
    for (var k = 0u; k < BATCH / 4u * params.one; k++) {
      var w: array<vec4<f32>, VALUE_ROWS>;
      for (var i = 0u; i < VALUE_ROWS; i++) {
        w[i] = weights[(row + i * VALUE_ROW_STEP) * 8u + start / 4u + k];
      }
      for (var j = 0u; j < VALUE_UNITS; j++) {
        // Lanes past the last unit repeat it; what they sum is not stored.
        let at = k * 4u * UNITS + min(lane + j * VALUE_LANES, UNITS - 1u);
        let x0 = stage[at];
        let x1 = stage[at + UNITS];
        let x2 = stage[at + 2u * UNITS];
        let x3 = stage[at + 3u * UNITS];
        for (var i = 0u; i < VALUE_ROWS; i++) {
          (*sum)[i * VALUE_UNITS + j] += w[i].x * x0 + w[i].y * x1 + w[i].z * x2 + w[i].w * x3;
        }
      }
    }
    workgroupBarrier();
  }
}
