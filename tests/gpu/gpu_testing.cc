#include "gpu/gpu_testing.h"

#include "wgrad/error.h"

namespace wgrad::gpu {

std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace wgrad::gpu
