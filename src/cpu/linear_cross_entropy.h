#pragma once

#include <cstdint>

#include "cpu/cross_entropy.h"

namespace wgrad::cpu {

/// Cross-entropy of logits = map(hidden weight^T) without ever holding all logits: `chunk_rows`
/// tokens at a time. Only tokens whose label counts are computed at all.
///
/// losses[t] is as in cross_entropy_forward; with g[t,:] as of cross_entropy_backward:
/// grad_hidden = g weight (0 where the label does not count), grad_weight += g^T hidden.
/// In double the result has the same bits for any chunk size.
template <class T>
void linear_cross_entropy(const T* hidden,        // [tokens, hidden_dim]
                          const T* weight,        // [vocab, hidden_dim]
                          const int32_t* labels,  // [tokens]
                          T scale,                // on the gradients, not on the losses
                          T* losses,              // [tokens], set
                          T* grad_hidden,         // [tokens, hidden_dim], set; null: not computed;
                                                  // may be `hidden`
                          T* grad_weight,         // [vocab, hidden_dim], accumulates; null: not
                                                  // computed
                          int64_t tokens, int64_t hidden_dim, int64_t vocab,
                          const LogitMap& map = {},
                          int64_t chunk_rows = 0);  // 0: linear_cross_entropy_chunk(vocab)

/// The chunk that is used when none is given: as many rows as keep the logits within 64 MiB of
/// f32, at least 16 and at most 1024.
int64_t linear_cross_entropy_chunk(int64_t vocab);

}  // namespace wgrad::cpu
