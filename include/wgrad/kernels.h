#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "wgrad/error.h"

// clang-format off
/// @file
/// The kernels that `wgrad kernels export` writes, one by one: what they are, their WGSL text for
/// another WebGPU program, and a device to run them on. All arrays are row-major and dense; values
/// are f32 unless said otherwise; sums are taken in f32 in a fixed order, so that the same device
/// gives the same bits every time. Each result is within 1e-4 of the exact one for inputs of
/// ordinary size (`wgrad verify` shows by how much on a device).
///
/// | Kernel | Computes | Buffers (written: *) |
/// |---|---|---|
/// | silu_backward | dx = dy s(x) (1 + x - x s(x)), s the logistic function | x, dy, dx* [n] |
/// | gemm_backward_a | of C = A B: dA = dC B^T | dC [M, N], B [K, N], dA* [M, K] |
/// | gemm_backward_b | of C = A B: dB = A^T dC | A [M, K], dC [M, N], dB* [K, N] |
/// | rms_norm_backward | of y = g x / sqrt(mean(x^2) + eps): dx set, dg added to (Zhang and Sennrich 2019) | x, dy, dx* [num_rows, hidden_dim], g, dg* [hidden_dim] |
/// | rope_backward | of rotary embedding: pairs (2i, 2i + 1) turned back by p theta^(-2i / head_dim), theta_log2 the binary logarithm of theta >= 1, head_dim even (Su et al. 2021) | dy, dx* [num_heads, seq_len, head_dim] |
/// | softmax_backward | of y = softmax(x) by row: dx = y (dy - sum(y dy)) | y, dy, dx* [num_rows, row_len] |
/// | cross_entropy_forward | lse = logsumexp(logits), loss = lse - logits[label]; loss 0 for positions outside [loss_start, loss_end) and labels outside the vocabulary | logits [seq_len, vocab_size], labels (u32), losses*, logsumexp* [seq_len] |
/// | cross_entropy_backward | in place: (exp(logit - lse) - [v = label]) scale; 0 where the loss is | logits* [seq_len, vocab_size], labels (u32), logsumexp [seq_len] |
/// | adamw_step | one step of AdamW; bias_correction1, 2 are 1 - beta^t (Loshchilov and Hutter 2019) | p*, g, m*, v* [n] |
/// | nf4_dequant | NF4 code times its block's scale (Dettmers et al. 2023) | packed [ceil(n / 8)] (u32, 8 codes a word, low nibble first), scales [ceil(n / block_size)], out* [n] |
// clang-format on
namespace wgrad {

/// A storage buffer of a kernel. Buffers are numbered from 0 in their order; the uniform buffer
/// with the fields has the number that follows the last.
struct KernelBinding {
  std::string_view name;      ///< as in the WGSL
  std::string_view elements;  ///< how many 4-byte elements: an expression over the fields
  bool written = false;       ///< by the kernel
};

/// A field of a kernel's uniform buffer, 4 bytes each, one after the other.
struct KernelField {
  std::string_view name;  ///< as in the WGSL
  bool is_f32 = false;    ///< else u32
};

/// A function to dispatch, with the workgroups in each dimension.
/// Expressions are integer arithmetic over the fields: + - * /, ceil_div(a,b), min(a,b), max(a,b),
/// parentheses.
struct KernelEntryPoint {
  std::string_view name;     ///< as in the WGSL
  std::string_view x;        ///< workgroups in the first dimension
  std::string_view y = "1";  ///< in the second
  std::string_view z = "1";  ///< in the third
};

/// What one kernel is and how to bind and dispatch it.
struct Kernel {
  std::string_view name;                       ///< also its file's, with ".wgsl"
  std::vector<KernelBinding> bindings;         ///< in the order of their numbers
  std::vector<KernelField> fields;             ///< of the uniform buffer, in order
  std::vector<KernelEntryPoint> entry_points;  ///< in the order in which they are dispatched

  /// The self-contained WGSL; it needs core WebGPU alone. Lives as long as the program.
  std::string_view text() const;
};

/// All of them. Lives as long as the program.
const std::vector<Kernel>& kernels();

/// A buffer's contents: both kinds are sent as the bits that they are.
using KernelData = std::variant<std::vector<float>, std::vector<uint32_t>>;
using KernelBuffers = std::map<std::string, KernelData>;  ///< by the binding's name
using KernelFields = std::map<std::string, double>;       ///< by the field's name

/// A WebGPU device that runs kernels one at a time. Owns the device; not thread-safe.
class KernelRunner {
 public:
  /// @param device "auto" or "gpu" (discrete, else integrated), "gpu:NAME" (part of the adapter's
  ///   name) or "software".
  /// @throws Error where there is no such device.
  explicit KernelRunner(const std::string& device = "auto");
  KernelRunner(KernelRunner&&) noexcept;             ///< what is moved from may only be destroyed
  KernelRunner& operator=(KernelRunner&&) noexcept;  ///< the same
  ~KernelRunner();

  std::string device_name() const;  ///< as its driver gives it

  /// Runs a kernel and waits for it.
  /// @param kernel the name of one of kernels().
  /// @param buffers one for each binding, with as many elements as the binding says; the contents
  ///   of those that the kernel writes are replaced.
  /// @param fields a value for each field (`pad` may be left out); u32 fields are whole numbers.
  /// @throws Error of kind kInput for an unknown kernel, a missing or unknown buffer or field, a
  ///   wrong number of elements or a value that the field cannot hold; of kind kRuntime where the
  ///   device fails or has too little memory.
  void run(std::string_view kernel, KernelBuffers& buffers, const KernelFields& fields);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wgrad
