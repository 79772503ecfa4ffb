#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// out[t] = table[ids[t]]. Every id must be below the table's number of rows.
template <class T>
void embedding_forward(const uint32_t* ids,  // [tokens]
                       const T* table,       // [vocab, hidden]
                       T* out,               // [tokens, hidden], set
                       int64_t tokens, int64_t hidden);

/// grad_table[ids[t]] += grad_out[t]; tokens are added in order.
template <class T>
void embedding_backward(const uint32_t* ids,  // [tokens]
                        const T* grad_out,    // [tokens, hidden]
                        T* grad_table,        // [vocab, hidden], accumulates
                        int64_t tokens, int64_t hidden);

}  // namespace wgrad::cpu
