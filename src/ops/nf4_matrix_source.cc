#include "ops/nf4_matrix_source.h"

#include <string>

#include "gpu/kernel_text.h"
#include "ops/gemm_output.h"
#include "ops/generated_kernels.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

/// Units of 16 bytes (8 halves) from one row of a tile in workgroup memory to the next: odd, so
/// that neighbouring rows lie in different banks. The 64 columns of a subgroup are 8 units and one
/// of padding, so that invocations that store a row side by side do not meet either.
constexpr int kTileStride = 35, kQuarter = 9;
constexpr int kSumStride = 5;  ///< units of a row of 16 sums

class Nf4MatrixWriter {
 public:
  explicit Nf4MatrixWriter(const Nf4MatrixKernel& kernel)
      : kernel_(kernel), forward_(kernel.op == MatmulOp::kNT) {}

  std::string write() {
    declare();
    decode_functions();
    store_function();
    w_.line("@compute @workgroup_size(128)");
    w_.line(
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, "
        "@builtin(local_invocation_index) t: u32) {{");
    place();
    loop();
    forward_ ? store_forward() : store_backward();
    w_.line("}}");
    return w_.take();
  }

 private:
  // Accumulators beside one another: columns of the output that one subgroup's sums belong to.
  int columns() const { return forward_ ? kernel_.tiles : 4; }

  void declare() {
    w_.line("enable f16; enable subgroups; enable chromium_experimental_subgroup_matrix;");
    w_.line("diagnostic(off, chromium.subgroup_matrix_uniformity);");
    w_.line("{}", gpu::kernel_source("lib_f16_blocks"));
    w_.line("@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;");
    w_.line("@group(0) @binding(1) var<storage, read> x_scales: array<f32>;");
    w_.line("@group(0) @binding(2) var<storage, read> codes: array<vec4<u32>>;");
    w_.line("@group(0) @binding(3) var<storage, read> absmax_codes: array<u32>;");
    w_.line("@group(0) @binding(4) var<storage, read> absmax_scales: array<f32>;");
    w_.line("@group(0) @binding(5) var<storage, read> bias: array<f32>;");
    w_.line("@group(0) @binding(6) var<storage, read_write> y: array<f32>;");
    w_.line(
        "struct Params {{ m: u32, out: u32, units: u32, column_blocks: u32, strips: u32, parts: "
        "u32, rounds: u32, ldc: u32, c_offset: u32, part_stride: u32, bias_offset: u32, "
        "accumulate: u32, has_bias: u32, absmax_offset: f32, divisor: f32, factor: f32 }}");
    w_.line("@group(0) @binding(7) var<uniform> p: Params;");
    w_.line("var<workgroup> tile: array<vec4<u32>, {}>;", kTileStride * kNf4TileRows);
    write_nf4_pair_functions(w_, 32, 128);
  }

  // What an invocation holds of a tile: 32 codes, and what their scale is made of. Codes past the
  // weight's end have the scale 0.
  void decode_functions() {
    w_.line("struct Piece {{ q: vec4<u32>, code: u32, scale: f32, inside: bool }}");
    w_.line("fn load_piece(row: u32, unit: u32) -> Piece {{");
    w_.line("  let at = min(row, p.out - 1u) * p.units + min(unit, p.units - 1u);");
    w_.line("  let block = at / 2u;");
    w_.line(
        "  return Piece(codes[at], (absmax_codes[block / 4u] >> (block % 4u * 8u)) & 255u, "
        "absmax_scales[256u + block / 256u], row < p.out && unit < p.units);");
    w_.line("}}");
    w_.line("fn eight(q: u32, scale: vec2<f16>, lane: u32) -> vec4<u32> {{");
    w_.line("  return vec4<u32>(");
    for (int byte = 0; byte < 4; ++byte) {
      w_.line("      bitcast<u32>(bitcast<vec2<f16>>(nf4_pair(q, {}u, lane)) * scale){}", byte,
              byte < 3 ? "," : ");");
    }
    w_.line("}}");
    w_.line("fn stage(piece: Piece, to: u32, lane: u32) {{");
    w_.line("  let absmax = nf4_pair_absmax(piece.code, piece.scale, p.absmax_offset);");
    w_.line("  let scale = vec2<f16>(f16(select(0.0, absmax * p.divisor, piece.inside)));");
    for (int word = 0; word < 4; ++word) {
      w_.line("  tile[to + {0}u] = eight(piece.q[{0}], scale, lane);", word);
    }
    w_.line("}}");
  }

  // The exact powers of two come one after the other, the weight's first, so that no product of
  // scales leaves f32's range where the result does not.
  void store_function() {
    w_.line("fn store(part: u32, row: u32, col: u32, sum: vec4<f32>) {{");
    w_.line("  let n = {};", forward_ ? "p.out" : "p.units * 32u");
    w_.line("  if (row >= p.m) {{ return; }}");
    w_.line("  let v = sum * p.factor * x_scales[row];");
    w_.line("  for (var j = 0u; j < 4u; j++) {{");
    w_.line("    if (col + j < n) {{");
    w_.line("      let g = p.c_offset + part * p.part_stride + row * p.ldc + col + j;");
    w_.line("      var value = v[j];");
    w_.line("      if (p.has_bias != 0u) {{ value += bias[p.bias_offset + col + j]; }}");
    w_.line("      if (p.accumulate != 0u) {{ value += y[g]; }}");
    w_.line("      y[g] = value;");
    w_.line("    }}");
    w_.line("  }}");
    w_.line("}}");
  }

  // `begin` and `end` count rounds: kNT 256 columns of the strip's rows, kNN the rows of `tiles`
  // tiles of the strip's columns. `row` and `unit` are the invocation's of the round 0.
  void place() {
    w_.line("  let id = wg.x + wg.y * grid.x;");
    w_.line("  if (id >= p.strips * p.parts) {{ return; }}");
    w_.line("  nf4_prepare_pairs(t);");
    w_.line("  let strip = id % p.strips;");
    w_.line("  let part = id / p.strips;");
    w_.line("  let sg = t / 32u; let lane = t % 32u;");
    w_.line("  let u = t % 8u;");
    w_.line("  let to = t / 8u * {}u + u * 4u + u / 2u;", kTileStride);
    if (forward_) {
      w_.line("  let total = (p.units + 7u) / 8u;");
      w_.line("  let row = strip * {}u + t / 8u;", 16 * kernel_.tiles);
    } else {
      w_.line("  let total = (p.out + {0}u) / {1}u;", 16 * kernel_.tiles - 1, 16 * kernel_.tiles);
      w_.line("  let unit = strip * 8u + u;");
    }
    w_.line("  let begin = part * p.rounds;");
    w_.line("  let end = min(begin + p.rounds, total);");
    for (int c = 0; c < columns(); ++c) {
      for (int m = 0; m < kernel_.row_blocks; ++m)
        w_.line("  var s{}_{} = {}();", c, m, kGemmResult);
    }
  }

  std::string piece(int i, const char* round) const {
    return forward_ ? fmt::format("load_piece(row + {}u, ({}) * 8u + u)", 16 * i, round)
                    : fmt::format("load_piece(({}) * {}u + {}u + t / 8u, unit)", round,
                                  16 * kernel_.tiles, 16 * i);
  }

  // The fragment of x for 16 of the reduction, a block's rows in the order of its units.
  void load_left(const std::string& name, int m, const std::string& block) {
    w_.line(
        "    let {} = subgroupMatrixLoad<{}, row_major>(&x, ({}u * p.column_blocks + min({}, "
        "p.column_blocks - 1u)) * 64u + {}u, 2u);",
        name, kGemmLeft, m / 2, block, m % 2 * 32);
  }

  // A tile is decoded while the next round's codes are on their way.
  void loop() {
    for (int i = 0; i < kernel_.tiles; ++i) w_.line("  var piece{} = {};", i, piece(i, "begin"));
    w_.line("  for (var trip = begin; trip < end; trip++) {{");
    w_.line("    let next = min(trip + 1u, total - 1u);");
    if (forward_) {
      for (int c = 0; c < 4; ++c) {
        for (int m = 0; m < kernel_.row_blocks; ++m) {
          load_left(fmt::format("a{}_{}", c, m), m, fmt::format("trip * 16u + sg * 4u + {}u", c));
        }
      }
    }
    for (int i = 0; i < kernel_.tiles; ++i) {
      if (!forward_) {
        for (int m = 0; m < kernel_.row_blocks; ++m) {
          load_left(fmt::format("a{}_{}", i, m), m,
                    fmt::format("trip * {}u + {}u", kernel_.tiles, i));
        }
      }
      w_.line("    stage(piece{}, to, lane);", i);
      w_.line("    piece{} = {};", i, piece(i, "next"));
      w_.line("    workgroupBarrier();");
      for (int c = 0; c < 4; ++c) multiply(i, c);
      w_.line("    workgroupBarrier();");
    }
    w_.line("  }}");
  }

  void multiply(int i, int c) {
    w_.line("    let b{}_{} = subgroupMatrixLoad<{}, {}>(&tile, sg * {}u + {}u, {}u);", i, c,
            kGemmRight, forward_ ? "col_major" : "row_major", kQuarter, 2 * c, kTileStride);
    for (int m = 0; m < kernel_.row_blocks; ++m) {
      const std::string sum = fmt::format("s{}_{}", forward_ ? i : c, m);
      w_.line("    {0} = subgroupMatrixMultiplyAccumulate(a{1}_{2}, b{3}_{4}, {0});", sum,
              forward_ ? c : i, m, i, c);
    }
  }

  // The four subgroups' sums of 16 rows by 16 columns, added in order.
  void store_forward() {
    for (int c = 0; c < columns(); ++c) {
      for (int m = 0; m < kernel_.row_blocks; ++m) {
        w_.line("  subgroupMatrixStore<row_major>(&tile, sg * {}u, s{}_{}, {}u);", 16 * kSumStride,
                c, m, kSumStride);
        w_.line("  workgroupBarrier();");
        w_.line("  if (t < 64u) {{");
        w_.line("    var sum = vec4<f32>();");
        w_.line("    for (var i = 0u; i < 4u; i++) {{");
        w_.line("      sum += bitcast<vec4<f32>>(tile[i * {}u + t / 4u * {}u + t % 4u]);",
                16 * kSumStride, kSumStride);
        w_.line("    }}");
        w_.line("    store(part, {}u + row_at(t / 4u), strip * {}u + {}u + t % 4u * 4u, sum);",
                16 * m, 16 * kernel_.tiles, 16 * c);
        w_.line("  }}");
        w_.line("  workgroupBarrier();");
      }
    }
  }

  // Each subgroup's own.
  void store_backward() {
    for (int c = 0; c < columns(); ++c) {
      for (int m = 0; m < kernel_.row_blocks; ++m) {
        w_.line("  subgroupMatrixStore<row_major>(&tile, sg * {}u, s{}_{}, {}u);", 16 * kSumStride,
                c, m, kSumStride);
        w_.line("  workgroupBarrier();");
        for (int half = 0; half < 2; ++half) {
          w_.line(
              "  store(part, {}u + row_at(lane / 4u + {}u), strip * 256u + sg * 64u + {}u + lane % "
              "4u * 4u, bitcast<vec4<f32>>(tile[sg * {}u + (lane / 4u + {}u) * {}u + lane % 4u]));",
              16 * m, 8 * half, 16 * c, 16 * kSumStride, 8 * half, kSumStride);
        }
        w_.line("  workgroupBarrier();");
      }
    }
  }

  const Nf4MatrixKernel& kernel_;
  const bool forward_;
  WgslWriter w_;
};

}  // namespace

const gpu::KernelSpec& nf4_matrix_kernel(const Nf4MatrixKernel& kernel) {
  return generated_kernel(kernel, "nf4_matrix",
                          [](const Nf4MatrixKernel& k) { return Nf4MatrixWriter(k).write(); });
}

}  // namespace wgrad::ops
