#include "model/read_rows.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "cpu/parallel.h"

namespace wgrad::model {

void read_rows(const io::TensorSource& source, const io::TensorView& tensor, int64_t begin,
               int64_t end, std::span<float> out) {
  constexpr int64_t kPartElements = int64_t{1} << 16;
  const int64_t row = tensor.row_size();
  const int64_t step = std::max(int64_t{1}, kPartElements / std::max(int64_t{1}, row));
  std::mutex mutex;
  std::exception_ptr failure;
  cpu::parallel_blocks(end - begin, step, row, [&](int64_t first, int64_t last) {
    try {
      source.read_f32(
          tensor, begin + first, begin + last,
          out.subspan(static_cast<size_t>(first * row), static_cast<size_t>((last - first) * row)));
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

void upload_tensor(Context& ctx, const io::TensorSource& source, const io::TensorView& tensor,
                   const Tensor& to) {
  constexpr int64_t kChunkElements = int64_t{1} << 22;
  if (ctx.kind() == DeviceKind::kPlan) return;
  const int64_t row = tensor.row_size();
  const int64_t step = std::max(int64_t{1}, kChunkElements / std::max(int64_t{1}, row));
  std::vector<float> chunk;
  for (int64_t begin = 0; begin < tensor.rows(); begin += step) {
    const int64_t end = std::min(tensor.rows(), begin + step);
    chunk.resize(static_cast<size_t>((end - begin) * row));
    read_rows(source, tensor, begin, end, chunk);
    ctx.upload<float>(to.flat(begin * row, (end - begin) * row), chunk);
  }
  source.release(tensor);
}

}  // namespace wgrad::model
