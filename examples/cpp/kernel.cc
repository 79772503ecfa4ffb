// One kernel by itself: the gradient of softmax over two rows, beside the same in double.
//   example_kernel [DEVICE]
#include <wgrad/kernels.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

int main(int argc, char** argv) {
  const size_t rows = 2, length = 3;
  const std::vector<float> y = {0.2f, 0.3f, 0.5f, 0.7f, 0.2f, 0.1f};
  const std::vector<float> dy = {1, -2, 3, 0.5f, 0, -1};
  wgrad::KernelBuffers buffers = {{"y", y}, {"dy", dy}, {"dx", std::vector<float>(rows * length)}};

  std::vector<float> dx;
  try {
    wgrad::KernelRunner runner(argc > 1 ? argv[1] : "auto");
    runner.run("softmax_backward", buffers, {{"num_rows", rows}, {"row_len", length}});
    dx = std::get<std::vector<float>>(buffers.at("dx"));
    std::printf("on %s\n", runner.device_name().c_str());
  } catch (const wgrad::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.kind() == wgrad::ErrorKind::kInput ? 2 : 1;
  }

  double worst = 0;
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (size_t i = r * length; i < (r + 1) * length; ++i) sum += double{y[i]} * dy[i];
    for (size_t i = r * length; i < (r + 1) * length; ++i) {
      const double expected = y[i] * (dy[i] - sum);
      std::printf("dx[%zu, %zu] = %9.6f, expected %9.6f\n", r, i - r * length, dx[i], expected);
      worst = std::max(worst, std::abs(dx[i] - expected));
    }
  }
  return worst < 1e-6 ? 0 : 1;
}
