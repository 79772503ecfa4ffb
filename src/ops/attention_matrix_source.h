#pragma once

#include <cstdint>
#include <string>

namespace wgrad::ops {

/// Attention on f16 subgroup matrices of 16x16x16 with subgroups of 32: the products in f16 with
/// f32 sums, the softmax in f32. Heads of up to 256 elements, packed to 64, 128 or 256.
/// kGradKvKeep also writes the gradients of the scores, kGradQKept multiplies them with k, where
/// kGradQ computes them again (heads of up to 128 alone: kGradQ and kGradKv).
enum class AttentionMatrixKernel : uint8_t { kForward, kGradQ, kGradKv, kGradKvKeep, kGradQKept };

/// Elements of a packed head.
constexpr int64_t attention_packed_dim(int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/// How many queries (keys in kGradKv) of one head a workgroup, or several, cover, and a workgroup's
/// invocations.
struct AttentionMatrixShape {
  int64_t rows, invocations, workgroup_bytes, workgroups = 1;
};
AttentionMatrixShape attention_matrix_shape(AttentionMatrixKernel kernel, int64_t packed_dim);

/// Gradients of scores are kept in tiles of 64 keys and 32 queries of one head, those on and after
/// the diagonal; each tile of keys with at most `per_keys` of them.
inline constexpr int64_t kKeptTileBytes = 64 * 32 * 2;
int64_t attention_kept_tiles(int64_t tokens, int64_t per_keys);

/// Directives, bindings and the entry point `main`; the constants and accessors of
/// attention_source.h, lib_attention_common and lib_attention_first_key belong between the two, and
/// where scores are capped SOFT_CAP, lib_vector4 and lib_tanh.
std::string attention_matrix_directives();
std::string attention_matrix_source(AttentionMatrixKernel kernel, int64_t packed_dim, bool capped);

}  // namespace wgrad::ops
