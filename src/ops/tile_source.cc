#include "ops/tile_source.h"

#include <algorithm>

#include "ops/generated_kernels.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

constexpr int kSlice = 16;  // depth of a tile along the reduction

/// One operand's way from its buffer into workgroup memory, where it lies as [k][row] in vec4s.
struct Side {
  char name;          // 'a' or 'b'
  bool k_contiguous;  // rows run along the reduction
  int rows;           // of the tile
  int stride;         // of workgroup memory, in vec4
  int base;           // where it starts in workgroup memory
  const char* dim;    // the uniform's field with the number of rows
  int units = 0, loads = 0, step = 0;

  void distribute(int invocations) {
    units = rows * kSlice / 4;
    loads = std::max(1, units / invocations);
    step = k_contiguous ? invocations / 4 : invocations / (rows / 4);
  }
};

class TileWriter {
 public:
  explicit TileWriter(const TileKernel& kernel)
      : kernel_(kernel),
        scalar_(kernel.access == TileAccess::kScalar),
        guard_(kernel.guard || scalar_),
        tail_(kernel.tail_k || scalar_),
        a_{'a', kernel.op != MatmulOp::kTN, kernel.bm, kernel.bm / 4 + kernel.pad, 0, "m"},
        b_{'b',
           kernel.op == MatmulOp::kNT,
           kernel.bn,
           kernel.bn / 4 + kernel.pad,
           kSlice * (kernel.bm / 4 + kernel.pad),
           "n"} {
    a_.distribute(kernel.invocations());
    b_.distribute(kernel.invocations());
  }

  std::string write() {
    declarations();
    fetch_function(a_);
    fetch_function(b_);
    store_function();
    w_.line("@compute @workgroup_size({})", kernel_.invocations());
    w_.line(
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: "
        "vec3<u32>, @builtin(local_invocation_index) t: u32) {{");
    place_tile();
    place_loads(a_);
    place_loads(b_);
    main_loop();
    epilogue();
    w_.line("}}");
    return w_.take();
  }

 private:
  void declarations() {
    const char* element = scalar_ ? "f32" : "vec4<f32>";
    w_.line("@group(0) @binding(0) var<storage, read> ga: array<{}>;", element);
    w_.line("@group(0) @binding(1) var<storage, read> gb: array<{}>;",
            kernel_.access == TileAccess::kHalf4 ? "vec2<u32>" : element);
    w_.line("@group(0) @binding(2) var<storage, read> bias: array<f32>;");
    w_.line("@group(0) @binding(3) var<storage, read_write> gc: array<{}>;", element);
    w_.line(
        "struct Params {{ m: u32, n: u32, k: u32, k_part: u32, lda: u32, ldb: u32, ldc: u32, "
        "c_part: u32, a_offset: u32, b_offset: u32, c_offset: u32, bias_offset: u32, "
        "tiles_m: u32, tiles_n: u32, alpha: f32, flags: u32 }}");
    w_.line("@group(0) @binding(4) var<uniform> p: Params;");
    w_.line("var<workgroup> sm: array<vec4<f32>, {}>;", b_.base + kSlice * b_.stride);
  }

  // Four elements along the contiguous direction from element (scalar) or vector `i`; of single
  // elements only `left` exist.
  void fetch_function(const Side& s) {
    if (scalar_) {
      w_.line("fn fetch_{}(i: u32, left: u32) -> vec4<f32> {{", s.name);
      w_.line("  var v = vec4<f32>();");
      w_.line("  for (var j = 0u; j < min(left, 4u); j++) {{ v[j] = g{}[i + j]; }}", s.name);
      w_.line("  return v;");
      w_.line("}}");
    } else if (s.name == 'b' && kernel_.access == TileAccess::kHalf4) {
      w_.line(
          "fn fetch_b(i: u32) -> vec4<f32> {{ let h = gb[i]; return "
          "vec4<f32>(unpack2x16float(h.x), unpack2x16float(h.y)); }}");
    } else {
      w_.line("fn fetch_{0}(i: u32) -> vec4<f32> {{ return g{0}[i]; }}", s.name);
    }
  }

  void store_function() {
    w_.line("fn store(row: u32, col: u32, part: u32, v: vec4<f32>) {{");
    w_.line("  if (row >= p.m || col >= p.n) {{ return; }}");
    w_.line("  let g = p.c_offset + part * p.c_part + row * p.ldc + col;");
    w_.line("  var r = p.alpha * v;");
    w_.line("  let b = p.bias_offset + col;");
    if (scalar_) {
      w_.line("  for (var j = 0u; j < min(4u, p.n - col); j++) {{");
      w_.line("    var x = r[j];");
      w_.line("    if ((p.flags & {}u) != 0u) {{ x += bias[b + j]; }}", kTileBias);
      w_.line("    if ((p.flags & {}u) != 0u) {{ x += gc[g + j]; }}", kTileAccumulate);
      w_.line("    gc[g + j] = x;");
      w_.line("  }}");
    } else {
      w_.line(
          "  if ((p.flags & {}u) != 0u) {{ r += vec4<f32>(bias[b], bias[b + 1u], bias[b + 2u], "
          "bias[b + 3u]); }}",
          kTileBias);
      w_.line("  if ((p.flags & {}u) != 0u) {{ r += gc[g / 4u]; }}", kTileAccumulate);
      w_.line("  gc[g / 4u] = r;");
    }
    w_.line("}}");
  }

  void place_tile() {
    const int nx = kernel_.bn / kernel_.tn;
    const int lanes_x = std::min(16, nx), lanes_y = 32 / lanes_x, groups_x = nx / lanes_x;
    w_.line("  let tiles = p.tiles_m * p.tiles_n;");
    w_.line("  let id = wg.x + wg.y * grid.x;");
    w_.line("  let part = id / tiles;");
    w_.line("  let k0 = part * p.k_part;");
    w_.line("  if (k0 >= max(p.k, 1u)) {{ return; }}");
    w_.line("  let k1 = min(p.k, k0 + p.k_part);");
    w_.line(
        "  // tile order: groups of 8 tile rows, column by column, so that neighbours share "
        "operands in the cache");
    w_.line("  let tile = id % tiles;");
    w_.line("  let first = tile / (8u * p.tiles_n) * 8u;");
    w_.line("  let height = min(8u, p.tiles_m - first);");
    w_.line("  let inside = tile - first * p.tiles_n;");
    w_.line("  let bm = (first + inside % height) * {}u;", kernel_.bm);
    w_.line("  let bn = (inside / height) * {}u;", kernel_.bn);
    w_.line("  let lane = t & 31u; let sg = t / 32u;");
    w_.line("  let tx = (sg % {}u) * {}u + lane % {}u;", groups_x, lanes_x, lanes_x);
    w_.line("  let ty = (sg / {}u) * {}u + lane / {}u;", groups_x, lanes_y, lanes_x);
  }

  // Running index of each load (`g`), the reduction index it stands for (`kk`), its place in
  // workgroup memory (`st`) and, for k-contiguous operands, its element there (`e`).
  void place_loads(const Side& s) {
    const char* unit = scalar_ ? "1u" : "4u";
    w_.line("  let {0}l = p.ld{0} / {1};", s.name, unit);
    if (s.k_contiguous) {
      // The low bit of the lane walks the reduction, the next four walk rows: at most two-way
      // conflicts on the transposing stores.
      w_.line("  let {}k = (t & 1u) + 2u * ((t / 32u) % 2u);", s.name);
      w_.line("  let {}r = ((t & 31u) >> 1u) + 16u * (t / 64u);", s.name);
      w_.line("  let {0}st = {0}k * {1}u + {2}u + {0}r / 4u; let {0}e = {0}r % 4u;", s.name,
              4 * s.stride, s.base);
      w_.line("  var {0}kk = k0 + {0}k * 4u;", s.name);
      for (int i = 0; i < indices(s); ++i) {
        std::string row = fmt::format("b{} + {}r + {}u", s.dim, s.name, i * s.step);
        if (guard_) row = fmt::format("min({}, p.{} - 1u)", row, s.dim);
        w_.line("  var {0}g{1} = (p.{0}_offset + k0) / {3} + ({2}) * {0}l + {0}k * {4};", s.name, i,
                row, unit, scalar_ ? "4u" : "1u");
      }
      return;
    }
    w_.line("  let {0}c = t % {1}u; let {0}r = t / {1}u;", s.name, s.rows / 4);
    w_.line("  let {0}st = {0}r * {1}u + {0}c + {2}u;", s.name, s.stride, s.base);
    w_.line("  var {0}kk = k0 + {0}r;", s.name);
    std::string column;
    if (scalar_) {
      w_.line("  let {0}col = b{1} + {0}c * 4u;", s.name, s.dim);
      w_.line("  let {0}left = p.{1} - min(p.{1}, {0}col);", s.name, s.dim);
      column = fmt::format("{}col", s.name);
    } else {
      column = fmt::format("b{} / 4u + {}c", s.dim, s.name);
      if (guard_) column = fmt::format("min({}, p.{} / 4u - 1u)", column, s.dim);
    }
    w_.line("  var {0}g0 = p.{0}_offset / {1} + (k0 + {0}r) * {0}l + {2};", s.name, unit, column);
  }

  // Rows are clamped one by one only where the tile may not be full: constant distances between the
  // loads save registers.
  int indices(const Side& s) const { return s.k_contiguous && guard_ ? s.loads : 1; }

  std::string fetch(const Side& s, int i) const {
    const char n = s.name;
    const std::string index = indices(s) > 1 ? fmt::format("{}g{}", n, i)
                              : i == 0       ? fmt::format("{}g0", n)
                                             : fmt::format("{0}g0 + {1}u * {0}l", n, i * s.step);
    if (!scalar_) return fmt::format("fetch_{}({})", n, index);
    if (s.k_contiguous) return fmt::format("fetch_{0}({1}, k1 - min(k1, {0}kk))", n, index);
    return fmt::format("fetch_{0}({1}, {0}left)", n, index);
  }

  void load(const Side& s, const char* indent, bool declare) {
    for (int i = 0; i < s.loads; ++i) {
      std::string condition;
      if (s.units < kernel_.invocations()) condition = fmt::format("t < {}u", s.units);
      if (tail_) {
        if (!condition.empty()) condition += " && ";
        condition += s.k_contiguous ? fmt::format("{}kk < k1", s.name)
                                    : fmt::format("{}kk + {}u < k1", s.name, i * s.step);
      }
      const std::string target = fmt::format("{}p{}", s.name, i);
      const char* var = declare ? "var " : "";
      if (condition.empty()) {
        w_.line("{}{}{} = {};", indent, var, target, fetch(s, i));
      } else {
        w_.line("{}{}{} = vec4<f32>();", indent, var, target);
        w_.line("{}if ({}) {{ {} = {}; }}", indent, condition, target, fetch(s, i));
      }
    }
  }

  void store_slice(const Side& s) {
    const char n = s.name;
    const bool partial = s.units < kernel_.invocations();
    if (partial) w_.line("    if (t < {}u) {{", s.units);
    for (int i = 0; i < s.loads; ++i) {
      if (s.k_contiguous) {
        for (int c = 0; c < 4; ++c) {
          w_.line("    sm[{0}st + {1}u][{0}e] = {0}p{2}[{3}];", n, i * s.step / 4 + c * s.stride, i,
                  c);
        }
      } else {
        w_.line("    sm[{0}st + {1}u] = {0}p{2};", n, i * s.step * s.stride, i);
      }
    }
    if (partial) w_.line("    }}");
  }

  void advance(const Side& s) {
    for (int i = 0; i < indices(s); ++i) {
      if (s.k_contiguous) {
        w_.line("      {}g{} += {}u;", s.name, i, scalar_ ? kSlice : kSlice / 4);
      } else {
        w_.line("      {0}g{1} += {2}u * {0}l;", s.name, i, kSlice);
      }
    }
    w_.line("      {}kk += {}u;", s.name, kSlice);
  }

  // The next slice is loaded while this one is multiplied; the scalar form, which has no speed to
  // lose, loads it when it is needed.
  void main_loop() {
    for (int i = 0; i < kernel_.tm; ++i) {
      for (int j = 0; j < kernel_.tn / 4; ++j) w_.line("  var c{}_{} = vec4<f32>();", i, j);
    }
    if (!scalar_) {
      load(a_, "  ", true);
      load(b_, "  ", true);
    }
    w_.line("  let slices = (k1 - k0 + {}u) / {}u;", kSlice - 1, kSlice);
    w_.line("  for (var slice = 0u; slice < slices; slice++) {{");
    if (scalar_) {
      load(a_, "    ", true);
      load(b_, "    ", true);
    }
    w_.line("    workgroupBarrier();");
    store_slice(a_);
    store_slice(b_);
    w_.line("    workgroupBarrier();");
    w_.line("    if (slice + 1u < slices) {{");
    advance(a_);
    advance(b_);
    w_.line("    }}");
    if (!scalar_) {
      load(a_, "    ", false);
      load(b_, "    ", false);
    }
    if (kernel_.unroll == kSlice) {
      for (int k = 0; k < kSlice; ++k) multiply(k, "");
    } else {
      w_.line("    for (var k = 0u; k < {}u; k += {}u) {{", kSlice, kernel_.unroll);
      w_.line("    let ak0 = ty + k * {}u; let bk0 = tx + k * {}u;", a_.stride, b_.stride);
      for (int k = 0; k < kernel_.unroll; ++k) multiply(k, "k0");
      w_.line("    }}");
    }
    w_.line("  }}");
  }

  // `row` is empty or names the first step of a partly written out slice.
  void multiply(int k, std::string_view row) {
    const int groups_m = kernel_.tm / 4, groups_n = kernel_.tn / 4;
    const std::string a = row.empty() ? "ty" : fmt::format("a{}", row);
    const std::string b = row.empty() ? "tx" : fmt::format("b{}", row);
    w_.line("    {{");
    for (int g = 0; g < groups_m; ++g) {
      w_.line("    let a{} = sm[{} + {}u];", g, a, k * a_.stride + g * (kernel_.bm / groups_m) / 4);
    }
    for (int g = 0; g < groups_n; ++g) {
      w_.line("    let b{} = sm[{} + {}u];", g, b,
              b_.base + k * b_.stride + g * (kernel_.bn / groups_n) / 4);
    }
    for (int i = 0; i < kernel_.tm; ++i) {
      for (int j = 0; j < groups_n; ++j) {
        w_.line("    c{0}_{1} = fma(vec4<f32>(a{2}[{3}]), b{1}, c{0}_{1});", i, j, i / 4, i % 4);
      }
    }
    w_.line("    }}");
  }

  void epilogue() {
    const int groups_m = kernel_.tm / 4, groups_n = kernel_.tn / 4;
    if (kernel_.store_loop) {
      std::string sums;
      for (int i = 0; i < kernel_.tm; ++i) {
        for (int j = 0; j < groups_n; ++j) sums += fmt::format("c{}_{}, ", i, j);
      }
      w_.line("  var sums = array<vec4<f32>, {}>({});", kernel_.tm * groups_n, sums);
      // A bound that compilers do not know, so that they do not unroll it.
      w_.line("  for (var s = 0u; s < {}u * min(p.tiles_m, 1u); s++) {{", kernel_.tm * groups_n);
      w_.line("    let i = s / {0}u; let j = s % {0}u;", groups_n);
      w_.line(
          "    store(bm + i / 4u * {}u + i % 4u + ty * 4u, bn + j * {}u + tx * 4u, part, sums[s]);",
          kernel_.bm / groups_m, kernel_.bn / groups_n);
      w_.line("  }}");
      return;
    }
    for (int i = 0; i < kernel_.tm; ++i) {
      for (int j = 0; j < groups_n; ++j) {
        w_.line("  store(bm + {}u + ty * 4u, bn + {}u + tx * 4u, part, c{}_{});",
                i / 4 * (kernel_.bm / groups_m) + i % 4, j * (kernel_.bn / groups_n), i, j);
      }
    }
  }

  const TileKernel& kernel_;
  const bool scalar_, guard_, tail_;
  Side a_, b_;
  WgslWriter w_;
};

}  // namespace

std::string tile_source(const TileKernel& kernel) { return TileWriter(kernel).write(); }

const gpu::KernelSpec& tile_kernel_spec(const TileKernel& kernel) {
  return generated_kernel(kernel, "matmul_tile", tile_source);
}

}  // namespace wgrad::ops
