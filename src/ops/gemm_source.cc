#include "ops/gemm_source.h"

#include <algorithm>

#include "ops/gemm_output.h"
#include "ops/generated_kernels.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

/// One operand on its way from its blocks into a slice of workgroup memory, all in units of 16
/// bytes (8 halves).
struct Side {
  char name;           // 'a' or 'b'
  const char* origin;  // the tile's first row (or column) in WGSL
  bool along_columns;  // the reduction runs along the stored columns: a slice is rows x 16
  int rows;            // of the tile
  int64_t columns;     // as stored
  bool clamp;

  // Workgroup memory. Along columns: `interleave` groups of rows lie side by side, a row every
  // `stride` units, which is odd so that neither stores nor fragment loads collide on banks.
  int interleave = 1, group = 0, stride = 0, size = 0, base = 0;
  int loads = 0;

  void arrange(int piece, int subgroups, bool ring) {
    const int blocks = rows / 16;
    if (along_columns) {
      interleave = std::clamp(rows / piece, 1, 4);
      group = rows / interleave;
      stride = 2 * interleave + 1;
      size = group * stride;
    } else {
      stride = rows / 8 + 1;
      size = 16 * stride;
    }
    loads = blocks * (ring ? 2 : 1) / subgroups;
  }
  int64_t pitch() const { return columns * 4; }  // units from one panel of 32 rows to the next
};

class GemmWriter {
 public:
  explicit GemmWriter(const GemmKernel& kernel)
      : kernel_(kernel),
        a_{'a', "bm", kernel.op != MatmulOp::kTN, kernel.bm, kernel.a_columns, kernel.clamp_a},
        b_{'b', "bn", kernel.op == MatmulOp::kNT, kernel.bn, kernel.b_columns, kernel.clamp_b},
        grid_n_(kernel.bn / kernel.wn),
        fragments_m_(kernel.wm / 16),
        fragments_n_(kernel.wn / 16) {
    a_.arrange(kernel.wm, kernel.subgroups(), kernel.ring);
    b_.arrange(kernel.wn, kernel.subgroups(), kernel.ring);
    b_.base = a_.size;
    slice_ = a_.size + b_.size;
  }

  int units() const { return std::max((kernel_.ring ? 3 : 2) * slice_, output_.strip_units()); }

  std::string write() {
    output_.declare(units());
    w_.line("@compute @workgroup_size({})", 32 * kernel_.subgroups());
    w_.line(
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: "
        "vec3<u32>, @builtin(local_invocation_index) t: u32) {{");
    place_tile();
    place_loads(a_);
    place_loads(b_);
    place_fragments();
    declare_fragments();
    if (kernel_.ring) {
      ring_loop();
    } else {
      pair_loop();
    }
    output_.store();
    w_.line("}}");
    return w_.take();
  }

 private:
  void place_tile() {
    if (kernel_.parts) {
      w_.line("  let tile = wg.x + wg.y * grid.x;");
      w_.line("  let part = tile / (p.tiles_m * p.tiles_n);");
      w_.line("  let id = tile % (p.tiles_m * p.tiles_n);");
      w_.line("  let first_chunk = part * p.chunks;");
      w_.line("  if (first_chunk >= p.all_chunks) {{ return; }}");
      w_.line("  let chunks = min(p.chunks, p.all_chunks - first_chunk);");
      w_.line("  part_begin = part * p.m * p.n;");
    } else {
      w_.line("  let id = wg.x + wg.y * grid.x;");
      w_.line("  if (id >= p.tiles_m * p.tiles_n) {{ return; }}");
    }
    w_.line(
        "  // groups of 8 tile rows, column by column, so that neighbours share operands in L2");
    w_.line("  let first = id / (8u * p.tiles_n) * 8u;");
    w_.line("  let height = min(8u, p.tiles_m - first);");
    w_.line("  let inside = id - first * p.tiles_n;");
    w_.line("  let bm = (first + inside % height) * {}u;", kernel_.bm);
    w_.line("  let bn = (inside / height) * {}u;", kernel_.bn);
    w_.line("  let sg = t / 32u; let lane = t & 31u;");
    w_.line("  let wm = (sg / {}u) * {}u; let wn = (sg % {}u) * {}u;", grid_n_, kernel_.wm, grid_n_,
            kernel_.wn);
    w_.line("  // row of a block that the lane's unit holds, and its half");
    w_.line(
        "  let lr = ((lane >> 1u) & 3u) * 2u + ((lane >> 3u) & 1u) + (lane >> 4u) * 8u; let lu "
        "= lane & 1u;");
    if (kernel_.ring) w_.line("  let ksl = sg & 1u;");
  }

  // Where a subgroup's load i comes from (`g`) and its lane's place in a slice (`st`).
  // In the ring, even subgroups fetch the chunk's first slice of an operand along columns and odd
  // ones the second; of an operand along rows each subgroup fetches both halves of its panel.
  void place_loads(const Side& s) {
    const int block_step =
        kernel_.ring && s.along_columns ? kernel_.subgroups() / 2 : kernel_.subgroups();
    const std::string block = kernel_.ring && s.along_columns ? "(sg >> 1u)" : "sg";
    const int indices = s.clamp ? distinct_blocks(s) : 1;
    const std::string first =
        kernel_.parts ? fmt::format(" + first_chunk * {}u", chunk_units(s)) : "";
    for (int i = 0; i < indices; ++i) {
      std::string at = fmt::format("{} / 16u + {}", s.origin, block);
      if (i > 0) at += fmt::format(" + {}u", i * block_step);
      if (s.clamp) at = fmt::format("min({}, p.{}_blocks - 1u)", at, s.name);
      w_.line("  let {}b{} = {};", s.name, i, at);
      if (s.along_columns) {
        w_.line(
            "  var {0}g{1} = p.{0}_offset + ({0}b{1} >> 1u) * {2}u + ({0}b{1} & 1u) * 32u{3} + "
            "lane{4};",
            s.name, i, s.pitch(), kernel_.ring ? " + ksl * 64u" : "", first);
      } else {
        w_.line("  var {0}g{1} = p.{0}_offset + {0}b{1} * 64u + lane{2};", s.name, i, first);
      }
    }
    if (s.along_columns) {
      w_.line(
          "  let {0}row = {1} * 16u; let {0}st = ({0}row % {2}u + lr) * {3}u + ({0}row / {2}u) "
          "* 2u + lu;",
          s.name, block, s.group, s.stride);
    } else {
      w_.line("  let {}st = lr * {}u + sg * 2u + lu;", s.name, s.stride);
    }
  }

  // From one chunk of 32 along the reduction to the next.
  static int64_t chunk_units(const Side& s) { return s.along_columns ? 128 : s.pitch(); }

  int distinct_blocks(const Side& s) const {
    return kernel_.ring && !s.along_columns ? s.loads / 2 : s.loads;
  }

  std::string load_index(const Side& s, int i) const {
    const int nw = kernel_.subgroups();
    const bool halves = kernel_.ring && !s.along_columns;
    const int block = halves ? i / 2 : i;
    int64_t offset = halves ? i % 2 * 32 : 0;
    if (!s.clamp) {
      offset += s.along_columns ? block * (kernel_.ring ? nw / 4 : nw / 2) * s.pitch()
                                : int64_t{block} * nw * 64;
    }
    std::string index = fmt::format("{}g{}", s.name, s.clamp ? block : 0);
    if (offset != 0) index += fmt::format(" + {}u", offset);
    return index;
  }

  // Place of load i in its slice.
  int store_offset(const Side& s, int i) const {
    const int nw = kernel_.subgroups();
    if (!s.along_columns) return s.base + (kernel_.ring ? i / 2 : i) * nw * 2;
    const int row = i * 16 * (kernel_.ring ? nw / 2 : nw);
    return s.base + row % s.group * s.stride + row / s.group * 2;
  }

  void load(const char* indent, const char* set, bool declare) {
    for (const Side* s : {&a_, &b_}) {
      for (int i = 0; i < s->loads; ++i) {
        w_.line("{}{}{}p{}{} = g{}[{}];", indent, declare ? "var " : "", s->name, set, i, s->name,
                load_index(*s, i));
      }
    }
  }

  void step(const Side& s, const char* indent, int64_t units) {
    const int indices = s.clamp ? distinct_blocks(s) : 1;
    for (int i = 0; i < indices; ++i) w_.line("{}{}g{} += {}u;", indent, s.name, i, units);
  }

  void place_fragments() {
    for (const Side* s : {&a_, &b_}) {
      const char* piece = s->name == 'a' ? "wm" : "wn";
      if (s->along_columns) {
        w_.line("  let {0}f = {1}u + ({2} % {3}u) * {4}u + ({2} / {3}u) * 2u;", s->name, s->base,
                piece, s->group, s->stride);
      } else {
        w_.line("  let {}f = {}u + {} / 8u;", s->name, s->base, piece);
      }
    }
  }

  void declare_fragments() {
    for (int i = 0; i < fragments_m_; ++i) {
      for (int j = 0; j < fragments_n_; ++j) w_.line("  var c{}_{}: {};", i, j, kGemmResult);
    }
    for (int set = 0; set < 2; ++set) {
      for (int i = 0; i < fragments_m_; ++i) w_.line("  var a{}_{}: {};", set, i, kGemmLeft);
      for (int j = 0; j < fragments_n_; ++j) w_.line("  var b{}_{}: {};", set, j, kGemmRight);
    }
  }

  void fragment(const Side& s, const char* indent, int set, const std::string& slice, int i) {
    const bool left = s.name == 'a';
    const char* order = left == s.along_columns ? "row_major" : "col_major";
    const int offset = s.along_columns ? i * 16 * s.stride : i * 2;
    w_.line("{}{}{}_{} = subgroupMatrixLoad<{}, {}>(&sm, {}{}f + {}u, {}u);", indent, s.name, set,
            i, left ? kGemmLeft : kGemmRight, order, slice, s.name, offset, s.stride);
  }

  void fragments(const char* indent, int set, const std::string& slice) {
    for (int i = 0; i < std::max(fragments_m_, fragments_n_); ++i) {
      if (i < fragments_m_) fragment(a_, indent, set, slice, i);
      if (i < fragments_n_) fragment(b_, indent, set, slice, i);
    }
  }

  void multiply(int set) {
    for (int j = 0; j < fragments_n_; ++j) {
      for (int ii = 0; ii < fragments_m_; ++ii) {
        const int i = j % 2 == 0 ? ii : fragments_m_ - 1 - ii;
        w_.line("    c{0}_{1} = subgroupMatrixMultiplyAccumulate(a{2}_{0}, b{2}_{1}, c{0}_{1});", i,
                j, set);
      }
    }
  }

  std::string chunk_count() const {
    if (kernel_.parts) return "chunks";
    return kernel_.chunks > 0 ? fmt::format("{}u", kernel_.chunks) : "p.chunks";
  }

  // A chunk of 32 from registers into the slices at o2 (its first 16) and o3.
  void ring_store(const char* indent, const char* first, const char* second) {
    if (a_.along_columns || b_.along_columns) {
      w_.line("{}let ok = select({}, {}, ksl == 1u);", indent, first, second);
    }
    for (const Side* s : {&a_, &b_}) {
      for (int i = 0; i < s->loads; ++i) {
        const char* slice = s->along_columns ? "ok" : i % 2 == 0 ? first : second;
        w_.line("{}sm[{} + {}st + {}u] = {}p{};", indent, slice, s->name, store_offset(*s, i),
                s->name, i);
      }
    }
  }

  void ring_advance(const char* indent) {
    w_.line("{}if (lc + 1u < {}) {{", indent, chunk_count());
    w_.line("{}  lc += 1u;", indent);
    for (const Side* s : {&a_, &b_}) {
      step(*s, "      ", chunk_units(*s));
    }
    w_.line("{}}}", indent);
  }

  // Slices of 16 in a ring of three; per chunk of 32 two barriers; loads, stores and fragment loads
  // of other slices are issued under the products of one.
  void ring_loop() {
    w_.line("  var lc = 0u;  // chunk held in the staging registers");
    load("  ", "", true);
    w_.line("  {{");
    ring_store("    ", "0u", fmt::format("{}u", slice_).c_str());
    w_.line("  }}");
    ring_advance("  ");
    load("  ", "", false);
    w_.line("  workgroupBarrier();");
    fragments("  ", 0, "");
    // The first trip stores into the slice that these fragments come from.
    w_.line("  workgroupBarrier();");
    w_.line("  var o1 = {}u; var o2 = {}u; var o3 = 0u;", slice_, 2 * slice_);
    w_.line("  for (var c = 0u; c < {}; c++) {{", chunk_count());
    fragments("    ", 1, "o1 + ");
    ring_store("    ", "o2", "o3");
    ring_advance("    ");
    load("    ", "", false);
    multiply(0);
    w_.line("    workgroupBarrier();");
    fragments("    ", 0, "o2 + ");
    multiply(1);
    w_.line("    workgroupBarrier();");
    w_.line("    let ot = o3; o3 = o2; o2 = o1; o1 = ot;");
    w_.line("  }}");
  }

  void pair_store(int set) {
    for (const Side* s : {&a_, &b_}) {
      for (int i = 0; i < s->loads; ++i) {
        w_.line("    sm[{}st + {}u] = {}p{}_{};", s->name, set * slice_ + store_offset(*s, i),
                s->name, set, i);
      }
    }
  }

  // To the next slice of 16; along rows a panel of 32 holds two.
  void pair_advance(int from_parity) {
    w_.line("    if (ls + 1u < 2u * {}) {{", chunk_count());
    w_.line("      ls += 1u;");
    for (const Side* s : {&a_, &b_}) {
      step(*s, "      ", s->along_columns ? 64 : from_parity == 0 ? 32 : s->pitch() - 32);
    }
    w_.line("    }}");
  }

  // Two slices in workgroup memory, the next two in registers; one barrier a slice.
  void pair_loop() {
    w_.line("  var ls = 0u;  // last slice asked for");
    load("  ", "0_", true);
    pair_advance(0);
    load("  ", "1_", true);
    pair_store(0);
    pair_store(1);
    pair_advance(1);
    load("  ", "0_", false);
    pair_advance(0);
    load("  ", "1_", false);
    w_.line("  workgroupBarrier();");
    fragments("  ", 0, "");
    w_.line("  workgroupBarrier();");
    w_.line("  for (var c = 0u; c < {}; c++) {{", chunk_count());
    for (int phase = 0; phase < 2; ++phase) {
      fragments("    ", 1 - phase, fmt::format("{}u + ", (1 - phase) * slice_));
      pair_store(phase);
      pair_advance(1 - phase);
      load("    ", phase == 0 ? "0_" : "1_", false);
      multiply(phase);
      w_.line("    workgroupBarrier();");
    }
    w_.line("  }}");
  }

  const GemmKernel& kernel_;
  Side a_, b_;
  int grid_n_, fragments_m_, fragments_n_;
  int slice_ = 0;
  WgslWriter w_;
  GemmOutput output_{kernel_, w_};
};

}  // namespace

int GemmKernel::workgroup_bytes() const { return GemmWriter(*this).units() * 16; }

std::string gemm_source(const GemmKernel& kernel) { return GemmWriter(kernel).write(); }

const gpu::KernelSpec& gemm_kernel_spec(const GemmKernel& kernel) {
  return generated_kernel(kernel, "gemm_f16", gemm_source);
}

}  // namespace wgrad::ops
