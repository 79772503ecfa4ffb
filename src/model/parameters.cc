#include "model/parameters.h"

#include <fmt/format.h>

#include <limits>

#include "ops/elementwise.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

constexpr int64_t kAlignment = 256 / sizeof(float);  ///< in elements; for bindings on the GPU

int64_t elements(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t align(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

/// Where a tensor lies: which group, and the first element in it.
struct Place {
  size_t group = 0;
  int64_t begin = 0;
};

}  // namespace

Parameters::Parameters(Context& ctx, const std::vector<Spec>& specs, std::string_view label) {
  const uint64_t limit = ctx.limits().max_buffer_size;
  const int64_t most = limit == 0 || limit > std::numeric_limits<int64_t>::max()
                           ? std::numeric_limits<int64_t>::max()
                           : static_cast<int64_t>(limit / sizeof(float));
  std::vector<Place> places(specs.size());
  std::vector<int64_t> sizes;
  for (const bool decay : {true, false}) {
    bool open = false;
    for (size_t i = 0; i < specs.size(); ++i) {
      if ((specs[i].shape.size() >= 2) != decay) continue;
      const int64_t size = align(elements(specs[i].shape));
      if (!open || sizes.back() > most - size) {
        sizes.push_back(0);
        groups_.push_back({.values = {}, .grads = {}, .decay = decay});
        open = true;
      }
      places[i] = {sizes.size() - 1, sizes.back()};
      sizes.back() += size;
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].values =
        ctx.allocate_zeroed({sizes[g]}, DType::kF32, fmt::format("{}/values", label));
    groups_[g].grads =
        ctx.allocate_zeroed({sizes[g]}, DType::kF32, fmt::format("{} gradients/flat", label));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterGroup& group = groups_[places[i].group];
    const int64_t count = elements(specs[i].shape);
    parameters_.push_back({specs[i].name,
                           group.values.flat(places[i].begin, count).reshape(specs[i].shape),
                           group.grads.flat(places[i].begin, count).reshape(specs[i].shape)});
  }
}

void check_binding(const Context& ctx, int64_t first_element, std::string_view name) {
  if (ctx.modelled() == DeviceKind::kCpu || first_element % kAlignment == 0) return;
  throw input_error(name,
                    fmt::format("begins {} numbers into the layer that holds it", first_element),
                    fmt::format("a multiple of {} on a GPU", kAlignment), "use --device cpu");
}

const Parameter* Parameters::find(std::string_view name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Parameter& parameter : parameters_) n += parameter.value.size();
  return n;
}

std::vector<Tensor> Parameters::gradients() const {
  std::vector<Tensor> flat;
  for (const ParameterGroup& group : groups_) flat.push_back(group.grads);
  return flat;
}

void Parameters::zero_gradients(Context& ctx) const {
  for (const ParameterGroup& group : groups_) ops::fill_zero(ctx, group.grads);
}

}  // namespace wgrad::model
