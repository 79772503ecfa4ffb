#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::model {

/// A trainable tensor: views into its group's flat buffers, at multiples of 256 bytes.
struct Parameter {
  std::string name;
  Tensor value, grad;  ///< f32, of one shape
};

/// Flat f32 buffers of one size: what the optimizer steps over. Gaps between the views are zero in
/// both and stay zero.
struct ParameterGroup {
  Tensor values, grads;
  bool decay = false;  ///< weight decay applies: matrices, not norms and biases
  int64_t size() const { return values.size(); }
};

/// All that a run trains: an adapter's matrices or a whole model's weights. Matrices come first.
/// Owns the memory together with the tensors that view it.
class Parameters {
 public:
  struct Spec {
    std::string name;
    Shape shape;
  };

  Parameters() = default;
  /// Lays the tensors out in order, those of two dimensions before the others, and splits them
  /// into groups that fit the device's largest buffer. Values and gradients are zero.
  Parameters(Context& ctx, const std::vector<Spec>& specs, std::string_view label);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// In the order of the specs.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& operator[](std::size_t i) const { return parameters_[i]; }
  const Parameter* find(std::string_view name) const;
  bool empty() const { return parameters_.empty(); }
  int64_t count() const;                  ///< elements, without the gaps
  std::vector<Tensor> gradients() const;  ///< the groups' flat gradients
  void zero_gradients(Context& ctx) const;

 private:
  std::vector<ParameterGroup> groups_;
  std::vector<Parameter> parameters_;
};

/// An input error where a view that begins at this f32 element cannot be a binding of the device.
void check_binding(const Context& ctx, int64_t first_element, std::string_view name);

}  // namespace wgrad::model
