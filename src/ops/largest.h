#pragma once

#include "cpu/largest.h"
#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// The index of the largest of the finite elements of x f32 (the first of equal ones; -1: none) and
/// whether all are finite. Waits for the device, and reads a kilobyte whatever the size of x.
cpu::Largest largest(Context& ctx, const Tensor& x);

}  // namespace wgrad::ops
