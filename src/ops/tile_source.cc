#include "ops/tile_source.h"

#include <algorithm>
#include <map>
#include <mutex>

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
  TileLoad load;
  bool guard;
  const char* dim;  // the uniform's field with the number of rows
  int units = 0, loads = 0, step = 0;

  void distribute(int invocations) {
    units = rows * kSlice / 4;
    loads = std::max(1, units / invocations);
    step = k_contiguous ? invocations / 4 : invocations / (rows / 4);
  }
};

const char* element_type(TileLoad load) {
  switch (load) {
    case TileLoad::kVec4:
      return "vec4<f32>";
    case TileLoad::kHalf4:
      return "vec2<u32>";
    case TileLoad::kScalar:
      break;
  }
  return "f32";
}

class TileWriter {
 public:
  explicit TileWriter(const TileKernel& kernel)
      : kernel_(kernel),
        a_{'a',
           kernel.op != MatmulOp::kTN,
           kernel.bm,
           kernel.bm / 4 + kernel.pad,
           0,
           kernel.a,
           kernel.guard_m,
           "m"},
        b_{'b',
           kernel.op == MatmulOp::kNT,
           kernel.bn,
           kernel.bn / 4 + kernel.pad,
           kSlice * (kernel.bm / 4 + kernel.pad),
           kernel.b,
           kernel.guard_n,
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
    int binding = 0;
    w_.line("@group(0) @binding({}) var<storage, read> ga: array<{}>;", binding++,
            element_type(kernel_.a));
    w_.line("@group(0) @binding({}) var<storage, read> gb: array<{}>;", binding++,
            element_type(kernel_.b));
    if (kernel_.bias) {
      w_.line("@group(0) @binding({}) var<storage, read> bias: array<f32>;", binding++);
    }
    w_.line("@group(0) @binding({}) var<storage, read_write> gc: array<{}>;", binding++,
            kernel_.store_vec4 ? "vec4<f32>" : "f32");
    w_.line(
        "struct Params {{ m: u32, n: u32, k: u32, k_part: u32, lda: u32, ldb: u32, ldc: u32, "
        "c_part: u32, a_offset: u32, b_offset: u32, c_offset: u32, bias_offset: u32, "
        "tiles_m: u32, tiles_n: u32, alpha: f32, accumulate: u32 }}");
    w_.line("@group(0) @binding({}) var<uniform> p: Params;", binding);
    w_.line("var<workgroup> sm: array<vec4<f32>, {}>;", b_.base + kSlice * b_.stride);
  }

  // Four elements along the contiguous direction; in the scalar form `i` is the element's index and
  // `left` says how many of the four exist.
  void fetch_function(const Side& s) {
    switch (s.load) {
      case TileLoad::kVec4:
        w_.line("fn fetch_{0}(i: u32) -> vec4<f32> {{ return g{0}[i]; }}", s.name);
        break;
      case TileLoad::kHalf4:
        w_.line(
            "fn fetch_{0}(i: u32) -> vec4<f32> {{ let h = g{0}[i]; return "
            "vec4<f32>(unpack2x16float(h.x), unpack2x16float(h.y)); }}",
            s.name);
        break;
      case TileLoad::kScalar:
        w_.line("fn fetch_{}(i: u32, left: u32) -> vec4<f32> {{", s.name);
        w_.line("  var v = vec4<f32>();");
        for (int j = 0; j < 4; ++j) {
          w_.line("  if (left > {1}u) {{ v[{1}] = g{0}[i + {1}u]; }}", s.name, j);
        }
        w_.line("  return v;");
        w_.line("}}");
    }
  }

  void store_function() {
    w_.line("fn store(row: u32, col: u32, part: u32, v: vec4<f32>) {{");
    w_.line("  if (row >= p.m || col >= p.n) {{ return; }}");
    w_.line("  let g = p.c_offset + part * p.c_part + row * p.ldc + col;");
    w_.line("  var r = p.alpha * v;");
    if (kernel_.store_vec4) {
      if (kernel_.bias) {
        w_.line("  let b = p.bias_offset + col;");
        w_.line("  r += vec4<f32>(bias[b], bias[b + 1u], bias[b + 2u], bias[b + 3u]);");
      }
      w_.line("  if (p.accumulate != 0u) {{ r += gc[g / 4u]; }}");
      w_.line("  gc[g / 4u] = r;");
    } else {
      w_.line("  for (var j = 0u; j < min(4u, p.n - col); j++) {{");
      w_.line("    var x = r[j];");
      if (kernel_.bias) w_.line("    x += bias[p.bias_offset + col + j];");
      w_.line("    if (p.accumulate != 0u) {{ x += gc[g + j]; }}");
      w_.line("    gc[g + j] = x;");
      w_.line("  }}");
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

  // Running index of each load (`g`), the reduction index it stands for (`k`), its place in
  // workgroup memory (`st`) and, for k-contiguous operands, its element there (`e`).
  void place_loads(const Side& s) {
    const char n = s.name;
    const bool scalar = s.load == TileLoad::kScalar;
    const char* unit = scalar ? "1u" : "4u";
    const char* width = scalar ? "4u" : "1u";  // elements of a unit, in index units
    w_.line("  let {}l = p.ld{} / {};", n, n, unit);
    if (s.k_contiguous) {
      // The low bit of the lane walks the reduction, the next four walk rows: at most two-way
      // conflicts on the transposing stores.
      w_.line("  let {}k = (t & 1u) + 2u * ((t / 32u) % 2u);", n);
      w_.line("  let {}r = ((t & 31u) >> 1u) + 16u * (t / 64u);", n);
      w_.line("  let {0}st = {0}k * {1}u + {2}u + {0}r / 4u; let {0}e = {0}r % 4u;", n,
              4 * s.stride, s.base);
      w_.line("  var {0}kk = k0 + {0}k * 4u;", n);
    } else {
      w_.line("  let {0}c = t % {1}u; let {0}r = t / {1}u;", n, s.rows / 4);
      w_.line("  let {0}st = {0}r * {1}u + {0}c + {2}u;", n, s.stride, s.base);
      w_.line("  var {0}kk = k0 + {0}r;", n);
      if (scalar) {
        w_.line("  let {0}col = b{1} + {0}c * 4u;", n, s.dim);
        w_.line("  let {0}left = p.{1} - min(p.{1}, {0}col);", n, s.dim);
      }
    }
    for (int i = 0; i < s.loads; ++i) {
      if (s.k_contiguous) {
        const std::string row = fmt::format("b{} + {}r + {}u", s.dim, n, i * s.step);
        const std::string at = s.guard ? fmt::format("min({}, p.{} - 1u)", row, s.dim) : row;
        if (!split_index(s) && i > 0) break;
        w_.line("  var {0}g{1} = (p.{0}_offset + k0) / {4} + ({2}) * {0}l + {0}k * {3};", n, i, at,
                width, unit);
      } else {
        if (i > 0) break;
        const std::string col =
            scalar    ? fmt::format("{}col", n)
            : s.guard ? fmt::format("min(b{0} / 4u + {1}c, p.{0} / 4u - 1u)", s.dim, n)
                      : fmt::format("b{} / 4u + {}c", s.dim, n);
        w_.line("  var {0}g0 = p.{0}_offset / {1} + (k0 + {0}r) * {0}l + {2};", n, unit, col);
      }
    }
  }

  // Rows are clamped one by one only where the tile is not full: constant distances between the
  // loads save registers.
  static bool split_index(const Side& s) { return s.k_contiguous && s.guard; }

  std::string fetch(const Side& s, int i) const {
    const char n = s.name;
    const std::string index = split_index(s) ? fmt::format("{}g{}", n, i)
                                             : fmt::format("{0}g0 + {1}u * {0}l", n, i * s.step);
    if (s.load != TileLoad::kScalar) return fmt::format("fetch_{}({})", n, index);
    if (s.k_contiguous) return fmt::format("fetch_{0}({1}, k1 - min(k1, {0}kk))", n, index);
    return fmt::format("fetch_{0}({1}, {0}left)", n, index);
  }

  void load(const Side& s, const char* indent, bool declare) {
    const char n = s.name;
    for (int i = 0; i < s.loads; ++i) {
      const std::string value = fetch(s, i);
      std::string condition;
      if (s.units < kernel_.invocations()) condition = fmt::format("t < {}u", s.units);
      if (kernel_.tail_k) {
        const std::string k = s.k_contiguous ? fmt::format("{}kk < k1", n)
                                             : fmt::format("{}kk + {}u < k1", n, i * s.step);
        condition = condition.empty() ? k : condition + " && " + k;
      }
      const std::string target = fmt::format("{}p{}", n, i);
      if (condition.empty()) {
        w_.line("{}{}{} = {};", indent, declare ? "var " : "", target, value);
      } else {
        w_.line("{}{}{} = vec4<f32>();", indent, declare ? "var " : "", target);
        w_.line("{}if ({}) {{ {} = {}; }}", indent, condition, target, value);
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
    const char n = s.name;
    const int indices = split_index(s) ? s.loads : 1;
    for (int i = 0; i < indices; ++i) {
      if (!s.k_contiguous) {
        w_.line("      {0}g{1} += {2}u * {0}l;", n, i, kSlice);
      } else {
        w_.line("      {}g{} += {}u;", n, i, s.load == TileLoad::kScalar ? kSlice : kSlice / 4);
      }
    }
    w_.line("      {}kk += {}u;", n, kSlice);
  }

  void main_loop() {
    for (int i = 0; i < kernel_.tm; ++i) {
      for (int j = 0; j < kernel_.tn / 4; ++j) w_.line("  var c{}_{} = vec4<f32>();", i, j);
    }
    load(a_, "  ", true);
    load(b_, "  ", true);
    w_.line("  let slices = (k1 - k0 + {}u) / {}u;", kSlice - 1, kSlice);
    w_.line("  for (var slice = 0u; slice < slices; slice++) {{");
    w_.line("    workgroupBarrier();");
    store_slice(a_);
    store_slice(b_);
    w_.line("    workgroupBarrier();");
    w_.line("    if (slice + 1u < slices) {{");
    advance(a_);
    advance(b_);
    w_.line("    }}");
    load(a_, "    ", false);
    load(b_, "    ", false);
    for (int k = 0; k < kSlice; ++k) multiply(k);
    w_.line("  }}");
  }

  void multiply(int k) {
    const int groups_m = kernel_.tm / 4, groups_n = kernel_.tn / 4;
    w_.line("    {{");
    for (int g = 0; g < groups_m; ++g) {
      w_.line("    let a{} = sm[ty + {}u];", g, k * a_.stride + g * (kernel_.bm / groups_m) / 4);
    }
    for (int g = 0; g < groups_n; ++g) {
      w_.line("    let b{} = sm[tx + {}u];", g,
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
    for (int i = 0; i < kernel_.tm; ++i) {
      for (int j = 0; j < groups_n; ++j) {
        w_.line("  store(bm + {}u + ty * 4u, bn + {}u + tx * 4u, part, c{}_{});",
                i / 4 * (kernel_.bm / groups_m) + i % 4, j * (kernel_.bn / groups_n), i, j);
      }
    }
  }

  const TileKernel& kernel_;
  Side a_, b_;
  WgslWriter w_;
};

}  // namespace

std::string tile_source(const TileKernel& kernel) { return TileWriter(kernel).write(); }

const gpu::KernelSpec& tile_kernel_spec(const TileKernel& kernel) {
  static std::mutex mutex;
  static std::map<TileKernel, gpu::KernelSpec> specs;
  const std::lock_guard lock(mutex);
  auto [it, added] = specs.try_emplace(kernel);
  if (added) {
    it->second.source = "matmul_tile";
    it->second.entry_point = "main";
    it->second.generated_text = tile_source(kernel);
  }
  return it->second;
}

}  // namespace wgrad::ops
