#include "ops/attention_matrix_source.h"

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
    case AttentionMatrixKernel::kGradKv:
      break;
  }
  return attention_matrix::grad_kv_shape(packed_dim);
}

std::string attention_matrix_source(AttentionMatrixKernel kernel, int64_t packed_dim) {
  switch (kernel) {
    case AttentionMatrixKernel::kForward:
      return attention_matrix::forward_source(packed_dim);
    case AttentionMatrixKernel::kGradQ:
      return attention_matrix::grad_q_source(packed_dim);
    case AttentionMatrixKernel::kGradKv:
      break;
  }
  return attention_matrix::grad_kv_source(packed_dim);
}

}  // namespace wgrad::ops
