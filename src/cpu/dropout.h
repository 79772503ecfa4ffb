#pragma once

#include <array>
#include <cstdint>

/// Dropout whose mask is a function of (seed, stream, element) alone, so that the backward pass
/// and a recomputed forward pass draw the same mask, on every device.
///
/// The mask, exactly: element e belongs to Philox4x32-10 block e / 4. With the counter words
/// (lo32(e / 4), hi32(e / 4), lo32(stream), hi32(stream)) and the key (lo32(seed), hi32(seed)), the
/// block gives four 32-bit words; element e takes word e % 4. It is kept if and only if
/// word >= floor(p 2^32). Kept elements are multiplied by 1 / (1 - p), computed in double and
/// rounded once; the others become 0.
namespace wgrad::cpu {

/// Philox4x32-10 (Salmon et al., 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// floor(p 2^32) for p in [0, 1).
uint32_t dropout_threshold(double p);

/// y = mask x / (1 - p); on gradients the same function is the backward pass. `first_element` is
/// the element that x[0] is. p must lie in [0, 1).
template <class T>
void dropout(const T* x, T* y /* set; may be x */, int64_t n, double p, uint64_t seed,
             uint64_t stream, uint64_t first_element = 0);

}  // namespace wgrad::cpu
