#pragma once

#include <cstdint>
#include <span>

#include "io/checkpoint_source.h"
#include "ops/context.h"

namespace wgrad::model {

/// Rows [begin, end) as f32, converted on all threads; `out` holds (end - begin) * row_size()
/// values. Throws what the source throws.
void read_rows(const io::TensorSource& source, const io::TensorView& tensor, int64_t begin,
               int64_t end, std::span<float> out);

/// Puts a whole tensor into an f32 tensor of its size, some rows at a time; a plan only counts.
void upload_tensor(Context& ctx, const io::TensorSource& source, const io::TensorView& tensor,
                   const Tensor& to);

}  // namespace wgrad::model
