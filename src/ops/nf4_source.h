#pragma once

#include "ops/wgsl_writer.h"

namespace wgrad::ops {

/// Writes the WGSL functions that decode NF4, for kernels that declare the bindings
/// `absmax_codes: array<u32>` (four codes a word) and `absmax_scales: array<f32>` (the dynamic map,
/// then the scales):
///   nf4_prepare(t)               fills the code's table, by at least 16 invocations, with a
///   barrier nf4_absmax(block, offset)    the scale of a block of 64 elements nf4_decode8(codes,
///   absmax)   eight elements of one word; the first is in the high nibble of the
///                                lowest byte
/// Equal to cpu::dequantise_nf4.
void write_nf4_functions(WgslWriter& w);

}  // namespace wgrad::ops
