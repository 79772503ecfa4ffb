#pragma once

#include <cstdint>
#include <string>

#include "ops/attention_matrix_text.h"

/// What the generators of the kernels that make grad_k and grad_v share. A workgroup owns 64 keys
/// of a KV head and walks over all queries that see them, of every head of its group. The keys are
/// the rows of the transposed products, so the weights are left operands as they lie, and k and v
/// stay in registers. Of the four subgroups that own 32 keys two make the transposed scores and
/// then grad_v (role 0), two make the transposed grad_out v^T and then grad_k (role 1); each side
/// takes half of the columns. Of wide heads a workgroup owns 32 keys, half of a tile, and each role
/// has four subgroups; both halves walk over the queries of the whole tile, so that all of it is
/// kept.
namespace wgrad::ops::attention_matrix {

inline constexpr int64_t kGradKvKeys = 64, kGradKvSubgroups = 8;
/// Keys of a workgroup.
inline int64_t grad_kv_keys(const Layout& l) { return l.wide() ? 32 : kGradKvKeys; }

/// `kept_type`: the elements in which gradients of scores are kept; nullptr: they are not.
void write_grad_kv_bindings(WgslWriter& w, const char* kept_type);
/// The entry point's head and the workgroup's place. A lane takes some queries, number `part`, of
/// the key number `row`; the queries begin at `start`.
void write_grad_kv_head(WgslWriter& w, const Layout& l, int64_t step_queries, bool capped);
/// Loads the invocation's `statistic` of the queries from `first` on. It is multiplied by
/// `statistic_factor` when it is stored, a step later: to compute with it at once would wait for
/// the load.
void write_grad_kv_statistic(WgslWriter& w, const char* head, const char* first,
                             int64_t step_queries);
/// f0_0..: k or v, by role, of `count` times 16 keys from `first_row` of the tile on.
void write_grad_kv_keys(WgslWriter& w, const Layout& l, int count, const char* first_row);
/// Stores the sums a0_0.. of 32 keys and the subgroup's columns.
void write_grad_kv_results(WgslWriter& w, const Layout& l);

/// For packed heads of 64: 16 queries a step in a ring of three tiles, the weights of a step beside
/// the products of the next, two barriers.
AttentionMatrixShape grad_kv_ring_shape();
std::string grad_kv_ring_source(bool keep, bool capped);

}  // namespace wgrad::ops::attention_matrix
