#include "ops/attention_matrix_source.h"

#include <algorithm>

#include "ops/attention_matrix_text.h"

namespace wgrad::ops {

std::string attention_matrix_directives() {
  return "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n"
         "diagnostic(off, chromium.subgroup_matrix_uniformity);\n";
}

AttentionMatrixShape attention_matrix_shape(AttentionMatrixKernel kernel, int64_t packed_dim) {
  switch (kernel) {
    case AttentionMatrixKernel::kForward:
      return attention_matrix::forward_shape(packed_dim);
    case AttentionMatrixKernel::kGradQ:
      return attention_matrix::grad_q_shape(packed_dim);
    case AttentionMatrixKernel::kGradQKept:
      return attention_matrix::grad_q_kept_shape(packed_dim);
    case AttentionMatrixKernel::kGradKv:
    case AttentionMatrixKernel::kGradKvKeep:
      break;
  }
  return attention_matrix::grad_kv_shape(packed_dim);
}

std::string attention_matrix_source(AttentionMatrixKernel kernel, int64_t packed_dim, bool capped) {
  switch (kernel) {
    case AttentionMatrixKernel::kForward:
      return attention_matrix::forward_source(packed_dim, capped);
    case AttentionMatrixKernel::kGradQ:
      return attention_matrix::grad_q_source(packed_dim, capped);
    case AttentionMatrixKernel::kGradQKept:
      return attention_matrix::grad_q_kept_source(packed_dim);
    case AttentionMatrixKernel::kGradKv:
    case AttentionMatrixKernel::kGradKvKeep:
      break;
  }
  return attention_matrix::grad_kv_source(packed_dim, kernel == AttentionMatrixKernel::kGradKvKeep,
                                          capped);
}

int64_t attention_kept_tiles(int64_t tokens, int64_t per_keys) {
  const int64_t query_tiles = (tokens + 31) / 32;
  int64_t tiles = 0;
  for (int64_t first = 0; first < query_tiles; first += 2) {
    tiles += std::min(per_keys, query_tiles - first);
  }
  return tiles;
}

}  // namespace wgrad::ops
