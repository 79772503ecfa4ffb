#include "cpu/linear_cross_entropy.h"

#include <vector>

#include "cpu/cross_entropy.h"
#include "cpu/instantiate.h"
#include "cpu/matmul.h"
#include "cpu/parallel.h"

namespace wgrad::cpu {
namespace {

/// The tokens whose label counts, in order.
std::vector<int64_t> counted_tokens(const int32_t* labels, int64_t tokens, int64_t vocab) {
  std::vector<int64_t> counted;
  for (int64_t t = 0; t < tokens; ++t) {
    if (label_counts(labels[t], vocab)) counted.push_back(t);
  }
  return counted;
}

/// A chunk's tokens, gathered so that the products see consecutive rows.
template <class T>
struct Chunk {
  Chunk(int64_t rows, int64_t hidden_dim, int64_t vocab)
      : hidden(static_cast<size_t>(rows * hidden_dim)),
        logits(static_cast<size_t>(rows * vocab)),
        labels(static_cast<size_t>(rows)),
        losses(static_cast<size_t>(rows)),
        logsumexp(static_cast<size_t>(rows)) {}

  std::vector<T> hidden;  // the chunk's hidden states
  std::vector<T> logits;  // becomes their gradient
  std::vector<int32_t> labels;
  std::vector<T> losses;
  std::vector<T> logsumexp;
};

}  // namespace

int64_t linear_cross_entropy_chunk(int64_t vocab) {
  constexpr int64_t kElements = (int64_t{64} << 20) / 4;
  return std::clamp<int64_t>(kElements / std::max<int64_t>(vocab, 1), 16, 1024);
}

template <class T>
void linear_cross_entropy(const T* hidden, const T* weight, const int32_t* labels, T scale,
                          T* losses, T* grad_hidden, T* grad_weight, int64_t tokens,
                          int64_t hidden_dim, int64_t vocab, const LogitMap& map,
                          int64_t chunk_rows) {
  const std::vector<int64_t> counted = counted_tokens(labels, tokens, vocab);
  const int64_t count = static_cast<int64_t>(counted.size());
  if (chunk_rows <= 0) chunk_rows = linear_cross_entropy_chunk(vocab);
  // Equal chunks: a short last one would cost a whole pass over the weight.
  const int64_t chunks = std::max<int64_t>(ceil_div(count, chunk_rows), 1);
  chunk_rows = ceil_div(count, chunks);
  std::fill(losses, losses + tokens, T(0));
  Chunk<T> chunk(chunk_rows, hidden_dim, vocab);
  std::vector<T> grad(grad_hidden == nullptr ? 0 : static_cast<size_t>(count * hidden_dim));

  for (int64_t first = 0; first < count; first += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, count - first);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t t = counted[static_cast<size_t>(first + r)];
      std::copy(hidden + t * hidden_dim, hidden + (t + 1) * hidden_dim,
                chunk.hidden.data() + r * hidden_dim);
      chunk.labels[static_cast<size_t>(r)] = labels[t];
    }
    matmul(MatmulOp::kNT, rows, vocab, hidden_dim, chunk.hidden.data(), hidden_dim, weight,
           hidden_dim, chunk.logits.data(), vocab);
    map_logits(chunk.logits.data(), rows * vocab, map);
    cross_entropy_forward(chunk.logits.data(), chunk.labels.data(), chunk.losses.data(),
                          chunk.logsumexp.data(), rows, vocab);
    for (int64_t r = 0; r < rows; ++r) {
      losses[counted[static_cast<size_t>(first + r)]] = chunk.losses[static_cast<size_t>(r)];
    }
    if (grad_hidden == nullptr && grad_weight == nullptr) continue;

    cross_entropy_backward(chunk.logits.data(), chunk.labels.data(), chunk.logsumexp.data(), rows,
                           vocab, scale, map);
    if (grad_weight != nullptr) {
      matmul(MatmulOp::kTN, vocab, hidden_dim, rows, chunk.logits.data(), vocab,
             chunk.hidden.data(), hidden_dim, grad_weight, hidden_dim, T(1), true);
    }
    if (grad_hidden != nullptr) {
      matmul(MatmulOp::kNN, rows, hidden_dim, vocab, chunk.logits.data(), vocab, weight, hidden_dim,
             grad.data() + first * hidden_dim, hidden_dim);
    }
  }
  if (grad_hidden == nullptr) return;
  std::fill(grad_hidden, grad_hidden + tokens * hidden_dim, T(0));
  for (int64_t i = 0; i < count; ++i) {
    std::copy(grad.data() + i * hidden_dim, grad.data() + (i + 1) * hidden_dim,
              grad_hidden + counted[static_cast<size_t>(i)] * hidden_dim);
  }
}

#define WGRAD_INSTANTIATE(T)                                                               \
  template void linear_cross_entropy<T>(const T*, const T*, const int32_t*, T, T*, T*, T*, \
                                        int64_t, int64_t, int64_t, const LogitMap&, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
