#include "gpu/kernel_text.h"
#include "wgrad/kernels.h"

namespace wgrad {
namespace {

/// One workgroup an item, or one a tile of the result, folded into two dimensions.
constexpr std::string_view kElementsX = "min(ceil_div(n,256),65535)";
constexpr std::string_view kElementsY = "ceil_div(ceil_div(n,256),65535)";

}  // namespace

std::string_view Kernel::text() const { return gpu::kernel_source(name); }

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> kernels = {
      {"silu_backward",
       {{"x", "n"}, {"dy", "n"}, {"dx", "n", true}},
       {{"n"}},
       {{"silu_backward", kElementsX, kElementsY}}},
      {"gemm_backward_a",
       {{"dC", "M*N"}, {"B", "K*N"}, {"dA", "M*K", true}},
       {{"M"}, {"K"}, {"N"}},
       {{"gemm_backward_a", "min(ceil_div(M,64)*ceil_div(K,64),65535)",
         "ceil_div(ceil_div(M,64)*ceil_div(K,64),65535)"}}},
      {"gemm_backward_b",
       {{"A", "M*K"}, {"dC", "M*N"}, {"dB", "K*N", true}},
       {{"M"}, {"K"}, {"N"}},
       {{"gemm_backward_b", "min(ceil_div(K,64)*ceil_div(N,64),65535)",
         "ceil_div(ceil_div(K,64)*ceil_div(N,64),65535)"}}},
      {"rms_norm_backward",
       {{"x", "num_rows*hidden_dim"},
        {"g", "hidden_dim"},
        {"dy", "num_rows*hidden_dim"},
        {"dx", "num_rows*hidden_dim", true},
        {"dg", "hidden_dim", true}},
       {{"num_rows"}, {"hidden_dim"}, {"eps", true}, {"pad"}},
       {{"inverse_rms", "min(num_rows,65535)", "ceil_div(num_rows,65535)"},
        {"weight_gradient", "ceil_div(hidden_dim,32)"},
        {"input_gradient", "min(num_rows,65535)", "ceil_div(num_rows,65535)"}}},
      {"rope_backward",
       {{"dy", "num_heads*seq_len*head_dim"}, {"dx", "num_heads*seq_len*head_dim", true}},
       {{"num_heads"}, {"head_dim"}, {"seq_len"}, {"theta_log2", true}},
       {{"rope_backward", "min(ceil_div(num_heads*seq_len*(head_dim/2),256),65535)",
         "ceil_div(ceil_div(num_heads*seq_len*(head_dim/2),256),65535)"}}},
      {"softmax_backward",
       {{"y", "num_rows*row_len"}, {"dy", "num_rows*row_len"}, {"dx", "num_rows*row_len", true}},
       {{"num_rows"}, {"row_len"}},
       {{"softmax_backward", "min(num_rows,65535)", "ceil_div(num_rows,65535)"}}},
      {"cross_entropy_forward",
       {{"logits", "seq_len*vocab_size"},
        {"labels", "seq_len"},
        {"losses", "seq_len", true},
        {"logsumexp", "seq_len", true}},
       {{"seq_len"}, {"vocab_size"}, {"loss_start"}, {"loss_end"}},
       {{"cross_entropy_forward", "min(seq_len,65535)", "ceil_div(seq_len,65535)"}}},
      {"cross_entropy_backward",
       {{"logits", "seq_len*vocab_size", true}, {"labels", "seq_len"}, {"logsumexp", "seq_len"}},
       {{"seq_len"}, {"vocab_size"}, {"loss_start"}, {"loss_end"}, {"scale", true}},
       {{"cross_entropy_backward", "min(seq_len,65535)", "ceil_div(seq_len,65535)"}}},
      {"adamw_step",
       {{"p", "n", true}, {"g", "n"}, {"m", "n", true}, {"v", "n", true}},
       {{"n"},
        {"lr", true},
        {"beta1", true},
        {"beta2", true},
        {"eps", true},
        {"weight_decay", true},
        {"bias_correction1", true},
        {"bias_correction2", true}},
       {{"adamw_step", kElementsX, kElementsY}}},
      {"nf4_dequant",
       {{"packed", "ceil_div(n,8)"}, {"scales", "ceil_div(n,block_size)"}, {"out", "n", true}},
       {{"n"}, {"block_size"}},
       {{"nf4_dequant", kElementsX, kElementsY}}},
  };
  return kernels;
}

}  // namespace wgrad
