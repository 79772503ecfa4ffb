#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "ops/context.h"
#include "ops/f16_operand.h"
#include "ops/matmul_f16.h"
#include "ops/tensor.h"

namespace wgrad::ops {

enum class WeightFormat : uint8_t {
  kF32,        ///< data f32 [out, in]
  kF16,        ///< data f16 [out, in], times `scale`; in % 8 == 0, out % 4 == 0
  kF16Blocks,  ///< data f16 in 16x16 blocks (ops/f16_blocks.h), times `scale`
  kNF4,        ///< bitsandbytes' NF4: packed codes, double-quantised absmax (ops/nf4.h)
};

/// The matrix of a linear layer as it lies on the device. The weight is [out, in] as Hugging Face
/// stores it: y = x W^T + b.
struct Weight {
  WeightFormat format = WeightFormat::kF32;
  int64_t out_features = 0, in_features = 0;
  Tensor data;
  /// kF16, kF16Blocks: the exact power of two that the stored values are multiplied by. kNF4: the
  /// power of two by which its values are divided when they become f16.
  float scale = 1.0f;
  /// kNF4: u8 code per block of 64; f32 [256 + blocks of 256]: the dynamic map, then the scales.
  Tensor absmax_codes, absmax_scales;
  float absmax_offset = 0.0f;
  std::string name;

  explicit operator bool() const { return static_cast<bool>(data); }
  int64_t bytes() const;
};

/// Reads rows [begin, end) of a weight as f32 into `out` ((end - begin) * in_features values).
using RowReader = std::function<void(int64_t begin, int64_t end, std::span<float> out)>;

/// Puts a frozen weight on the device, streaming rows so that no second whole copy exists on the
/// host: kF32, or what the compute type and the device make best of an f16 request (kF16Blocks with
/// subgroup matrices, kF16 with f16 storage alone, else kF32; on the CPU kF32), or kNF4.
enum class WeightPrecision : uint8_t { kF32, kCompute, kNF4 };
Weight load_weight(Context& ctx, std::string name, int64_t out_features, int64_t in_features,
                   WeightPrecision precision, const RowReader& read_rows);
/// A CPU weight in place over mapped f32 memory, or any f32 tensor as a weight (trainable).
Weight weight_from(const Tensor& data, std::string name);
/// Rows [begin, end) as a weight by itself, with the same values. Shares the memory where the
/// format and the device's alignment allow; otherwise the rows are copied as f32.
Weight weight_rows(Context& ctx, const Weight& weight, int64_t begin, int64_t end);
/// The whole weight as f32 [out, in], for merging and export.
Tensor weight_to_f32(Context& ctx, const Weight& weight);

/// The rows [T,in] that several linear layers take. Where a layer multiplies in f16 they are packed
/// at the first use and stay packed, in memory of the context, as long as this object lives. What
/// the rows hold must not change meanwhile.
class LinearInput {
 public:
  explicit LinearInput(const Tensor& rows) : rows_(rows) {}
  /// What exists in packed form alone; only layers that multiply in f16 take it, and whole.
  explicit LinearInput(F16Operand packed)
      : parts_({{{int64_t{0}, packed.rows}, std::move(packed)}}) {}

  /// Empty where there is only the packed form.
  const Tensor& rows() const { return rows_; }
  int64_t tokens() const { return rows_ ? rows_.dim(0) : whole().rows; }
  int64_t columns() const { return rows_ ? rows_.dim(1) : whole().columns; }
  /// Rows [begin, end) in f16 blocks.
  const F16Operand& packed(Context& ctx, int64_t begin, int64_t end);

 private:
  const F16Operand& whole() const { return parts_.begin()->second; }

  Tensor rows_;
  std::map<std::pair<int64_t, int64_t>, F16Operand> parts_;
};

/// Whether both passes of this layer over so many tokens take inputs that exist in packed form
/// alone.
bool linear_takes_packed(const Context& ctx, const Weight& weight, int64_t tokens);

/// y[T,out] = x[T,in] W^T + bias (bias may be empty) (+ y when accumulate).
void linear_forward(Context& ctx, const Tensor& x, const Weight& weight, const Tensor& bias,
                    const Tensor& y, bool accumulate = false);
/// The same for an input that other layers take too; y gets `term` as well, where there is one.
void linear_forward(Context& ctx, LinearInput& x, const Weight& weight, const Tensor& bias,
                    const Tensor& y, bool accumulate = false, const LowRankTerm& term = {});
/// grad_x[T,in] = grad_y[T,out] W (+ grad_x when accumulate).
void linear_backward_input(Context& ctx, const Tensor& grad_y, const Weight& weight,
                           const Tensor& grad_x, bool accumulate);
void linear_backward_input(Context& ctx, LinearInput& grad_y, const Weight& weight,
                           const Tensor& grad_x, bool accumulate, const LowRankTerm& term = {});
/// grad_w[out,in] += grad_y^T x.
void linear_backward_weight(Context& ctx, const Tensor& grad_y, const Tensor& x,
                            const Tensor& grad_w);
/// grad_bias[out] += column sums of grad_y.
void bias_backward(Context& ctx, const Tensor& grad_y, const Tensor& grad_bias);

/// LoRA (Hu et al. 2021): y += scale * (x A^T) B^T, A[r,in], B[out,r]. `xa` [T,r] is saved for the
/// backward pass. `x` is the adapter's own input (after its dropout).
void lora_forward(Context& ctx, const Tensor& x, const Tensor& a, const Tensor& b, float scale,
                  const Tensor& xa, const Tensor& y);
/// grad_b += scale * grad_y^T xa; grad_xa = scale * grad_y B; grad_a += grad_xa^T x;
/// grad_x += grad_xa A, unless grad_x is empty. `grad_xa` [T,r] is scratch.
void lora_backward(Context& ctx, const Tensor& x, const Tensor& xa, const Tensor& a,
                   const Tensor& b, float scale, const Tensor& grad_y, const Tensor& grad_xa,
                   const Tensor& grad_a, const Tensor& grad_b, const Tensor& grad_x);

}  // namespace wgrad::ops
