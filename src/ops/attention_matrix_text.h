#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "ops/attention_matrix_source.h"
#include "ops/wgsl_writer.h"

/// What the generators of attention's matrix kernels share.
namespace wgrad::ops::attention_matrix {

/// Positions in workgroup memory, counted in units of 16 bytes. Rows are an odd number of units
/// apart, so that matrix loads do not collide on banks.
struct Layout {
  explicit Layout(int64_t packed_dim)
      : dim(packed_dim), units(packed_dim / 8), row(packed_dim / 8 + 1) {}

  int64_t dim;
  int64_t units;                              ///< of 8 halves in a packed head
  int64_t row;                                ///< distance of packed heads
  int64_t steps() const { return dim / 16; }  ///< blocks of the reduction over head_dim
  int64_t half() const { return dim / 32; }   ///< blocks of half a head's columns
  /// Heads so wide that four subgroups share what two do else, so that it fits in registers.
  bool wide() const { return dim > 128; }
};

inline constexpr int64_t kTile = 32;                  ///< keys (queries in kGradKv) a step
inline constexpr int64_t kScoreRow = kTile / 4 + 1;   ///< distance of rows of 32 f32
inline constexpr int64_t kWeightRow = kTile / 8 + 1;  ///< distance of rows of 32 f16

inline constexpr const char* kResult = "subgroup_matrix_result<f32, 16, 16>";

/// WGSL that loads a 16x16 f16 operand of the products ("left" or "right") from workgroup memory.
std::string load_matrix(const char* side, const char* order, const std::string& at, int64_t row);

using Names = std::initializer_list<std::pair<const char*, const char*>>;  ///< name, element type
void write_bindings(WgslWriter& w, Names reads, Names writes);
/// Workgroup memory `sm` of so many units, and how it is read and packed.
void write_common(WgslWriter& w, int64_t units);
/// The entry point's head for kernels by queries: `t` and the workgroup's place: `head`, `kv_head`,
/// `first` (its first query), `kb` (the first key of its tiles), `tiles`.
void write_query_head(WgslWriter& w, const AttentionMatrixShape& shape);
/// NAME0.. become `masked` where the position `base` + i is not in [begin, end).
void write_mask(WgslWriter& w, const char* name, int count, const char* base, const char* masked,
                const char* begin, const char* end);
/// With a soft cap (constant SOFT_CAP, lib_tanh.wgsl) what stands for a score is its tanh of
/// score / SOFT_CAP. `to_log2` makes it a score times log2(e), for the exponentials.
void write_cap_factors(WgslWriter& w);
/// WGSL of that tanh, or of the product itself.
std::string score_text(bool capped, const std::string& product);
/// Factors that bring sums of packed operands back; see attention_pack.wgsl. A gradient of a score
/// is at most 2^31 in packed units, so 2^-16 of it fits f16; a cap's slope is at most 1.
void write_grad_factors(WgslWriter& w, bool capped);

/// Where kept gradients of scores lie: `kept_tile(head, keys, queries)`, the number of the tile of
/// the keys from 64 * keys and the queries from 32 * queries, 256 units each; a unit holds the
/// eight queries number `part` of one key and is number key / 8 * 32 + part * 8 + key % 8 of its
/// tile. A tile of keys has up to params.kept_tiles tiles of queries, fewer where the queries end.
void write_kept_tile(WgslWriter& w);

/// A tile of packed heads passes from storage through registers NAME0.. to workgroup memory.
struct Staging {
  Staging(const Layout& layout, int64_t invocations, int64_t rows = kTile)
      : layout(layout),
        count(rows * layout.units / invocations),
        step(invocations / layout.units) {}

  void declare(WgslWriter& w, const char* name) const {
    for (int64_t i = 0; i < count; ++i) w.line("  var {}{}: vec4<u32>;", name, i);
  }
  /// Tokens from `first` on; `cells` is the first cell of the tensor in its buffer.
  void load(WgslWriter& w, const char* name, const char* tensor, const char* cells,
            const std::string& first, const char* last, const char* heads, const char* head) const {
    for (int64_t i = 0; i < count; ++i) {
      w.line("    {}{} = {}[({} + min({} + load_row + {}u, {}) * {} + {}) * {}u + load_unit];",
             name, i, tensor, cells, first, i * step, last, heads, head, layout.units);
    }
  }
  void store(WgslWriter& w, const char* name, int64_t at) const {
    for (int64_t i = 0; i < count; ++i) {
      w.line("    sm[{}u + load_slot] = {}{};", at + i * step * layout.row, name, i);
    }
  }
  void write_lanes(WgslWriter& w) const {
    w.line("  let load_unit = t % {}u;", layout.units);
    w.line("  let load_row = t / {}u;", layout.units);
    w.line("  let load_slot = load_row * {}u + load_unit;", layout.row);
  }

  const Layout& layout;
  int64_t count, step;
};

AttentionMatrixShape forward_shape(int64_t packed_dim);
AttentionMatrixShape grad_q_shape(int64_t packed_dim);
AttentionMatrixShape grad_q_kept_shape(int64_t packed_dim);
AttentionMatrixShape grad_kv_shape(int64_t packed_dim);
std::string forward_source(int64_t packed_dim, bool capped);
std::string grad_q_source(int64_t packed_dim, bool capped);
std::string grad_q_kept_source(int64_t packed_dim);
std::string grad_kv_source(int64_t packed_dim, bool keep, bool capped);

}  // namespace wgrad::ops::attention_matrix
