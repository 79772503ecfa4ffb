#include <algorithm>
#include <cstring>

#include "gpu/device.h"

namespace wgrad::gpu {
namespace {

class Hasher {
 public:
  void add(uint64_t word) {
    h_ = (h_ ^ word) * 0x9E3779B97F4A7C15u;
    h_ ^= h_ >> 29;
  }
  void add(std::string_view text) {
    add(text.size());
    constexpr size_t kSamples = 64;
    const size_t stride = std::max<size_t>(8, text.size() / kSamples);
    size_t i = 0;
    for (; i + 8 <= text.size(); i += stride) add(word(text, i, 8));
    if (i < text.size()) add(word(text, i, text.size() - i));
  }
  uint64_t value() const { return h_; }

 private:
  static uint64_t word(std::string_view text, size_t at, size_t bytes) {
    uint64_t w = 0;
    std::memcpy(&w, text.data() + at, bytes);
    return w;
  }

  uint64_t h_ = 0;
};

}  // namespace

uint64_t hash_of(const KernelSpec& kernel) {
  Hasher h;
  h.add(kernel.source);
  h.add(kernel.entry_point);
  h.add(kernel.prelude);
  h.add(kernel.generated_text);
  for (const auto& [name, value] : kernel.overrides) {
    h.add(name);
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    h.add(bits);
  }
  return h.value();
}

}  // namespace wgrad::gpu
