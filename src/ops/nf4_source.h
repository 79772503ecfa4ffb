#pragma once

#include "ops/wgsl_writer.h"

namespace wgrad::ops {

/// Writes the WGSL functions that decode NF4, for kernels that declare the bindings
/// `absmax_codes: array<u32>` (four codes a word) and `absmax_scales: array<f32>` (the dynamic map,
/// then the scales):
///   nf4_prepare(t)              fills the code's table, by 16 invocations or more; a barrier
///   nf4_absmax(block, offset)   the scale of a block of 64 elements
///   nf4_decode8(codes, absmax)  eight elements of a word, the first in the lowest byte's high half
/// Equal to cpu::dequantise_nf4.
void write_nf4_functions(WgslWriter& w);

/// Writes decoding by pairs, for kernels with the same bindings: a table from a byte of codes to
/// its two values in f16, rounded to nearest, once for each of `copies` (a power of two up to 32)
/// invocations that stand side by side, so that they do not meet in a bank of workgroup memory.
///   nf4_prepare_pairs(t)      fills the tables, by all `invocations`; a barrier
///   nf4_pair(q, byte, lane)   the two f16 of a byte (0 to 3) of a word of codes
///   nf4_pair_absmax(code, scale, offset)  the scale of 64 from its code and that of its block
///   nf4_pairs                 the table: workgroup memory, 256 * copies words
void write_nf4_pair_functions(WgslWriter& w, int copies, int invocations);
/// Bytes of workgroup memory of these functions.
constexpr int nf4_pair_bytes(int copies) { return 1024 * copies + 1024; }

}  // namespace wgrad::ops
