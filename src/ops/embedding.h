#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// out[t] = table[ids[t]]; ids u32 [T], each < vocabulary (checked on the host); out f32 [T, H].
/// The table is a Weight [V, H] in any format, so a tied output layer is stored once.
void embedding_forward(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out);

/// grad_table[id] += sum of grad_out over the positions with that id. `ids` are the same on the
/// host: they are grouped there so that the sum is deterministic without atomics.
void embedding_backward(Context& ctx, std::span<const uint32_t> ids, const Tensor& grad_out,
                        const Tensor& grad_table);

/// to[i] = from[rows[i]] (gather), used to keep the counted positions only.
void gather_rows(Context& ctx, const Tensor& from, const Tensor& rows, const Tensor& to);
/// to[rows[i]] = from[i], other rows of `to` become zero; rows distinct.
void scatter_rows(Context& ctx, const Tensor& from, const Tensor& rows, const Tensor& to);

}  // namespace wgrad::ops
