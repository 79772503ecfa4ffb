#include "model/gguf_tensor.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "cpu/parallel.h"
#include "io/gguf_names.h"
#include "io/quantize.h"
#include "model/read_rows.h"

namespace wgrad::model {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 22;

/// A vector counts as rows of one element, so that it can be reordered.
struct Layout {
  int64_t rows, width;
};

Layout layout_of(const GgufTensor& tensor) {
  const io::TensorView& view = *tensor.view;
  if (view.shape.size() == 1 && tensor.head > 0) return {view.row_size(), 1};
  return {view.rows(), view.row_size()};
}

void produce(const GgufTensor& tensor, const io::ByteSink& sink) {
  const io::TensorView& view = *tensor.view;
  const Layout layout = layout_of(tensor);
  const bool whole = layout.rows != view.rows();
  int64_t step = whole ? layout.rows : std::max<int64_t>(1, kChunkElements / layout.width);
  if (tensor.head > 0) step = (step + tensor.head - 1) / tensor.head * tensor.head;
  std::vector<float> rows;
  for (int64_t begin = 0; begin < layout.rows; begin += step) {
    const int64_t end = std::min(layout.rows, begin + step);
    rows.resize(static_cast<size_t>((end - begin) * layout.width));
    read_rows(*tensor.source, view, whole ? 0 : begin, whole ? 1 : end, rows);
    if (tensor.edits != nullptr) tensor.edits->apply(view, begin, end, rows);
    if (tensor.head > 0) rows = reordered_rows(rows, layout.width, tensor.head);
    for (float& x : rows) x += tensor.offset;
    sink_rows(tensor.type, rows, layout.width, view.where, sink);
  }
  tensor.source->release(view);
}

}  // namespace

io::TensorToWrite gguf_entry(std::string name, const GgufTensor& tensor) {
  return {.name = std::move(name),
          .type = tensor.type,
          .shape = tensor.view->shape,
          .produce = [tensor](const io::ByteSink& sink) { produce(tensor, sink); }};
}

std::vector<float> reordered_rows(std::span<const float> values, int64_t width, int64_t head) {
  std::vector<float> result(values.size());
  const auto size = static_cast<size_t>(width);
  for (size_t row = 0; row < values.size() / size; ++row) {
    const auto from = static_cast<size_t>(io::half_split_row(static_cast<int64_t>(row), head));
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from * size), size,
                result.begin() + static_cast<std::ptrdiff_t>(row * size));
  }
  return result;
}

void sink_rows(io::FileType type, std::span<const float> values, int64_t width,
               const std::string& where, const io::ByteSink& sink) {
  // A vector's single elements are no blocks; it is never quantised.
  const auto row = static_cast<size_t>(width);
  const size_t row_bytes = row / io::block_elements(type) * io::block_bytes(type);
  std::vector<std::byte> bytes(values.size() / row * row_bytes);
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 14) / width);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto count = static_cast<int64_t>(values.size() / row);
  cpu::parallel_blocks(count, step, 64 * width, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin), rows = static_cast<size_t>(end - begin);
    try {
      io::from_f32(type, values.subspan(first * row, rows * row),
                   std::span(bytes).subspan(first * row_bytes, rows * row_bytes), where);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  sink(bytes);
}

}  // namespace wgrad::model
