#pragma once

#include "train/setup.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// Decides `recompute` where it is auto, by running the largest step on a plan context, and finds
/// the run's memory. Throws where the run cannot fit, naming what would make it fit.
TrainPlan make_plan(RunSetup& setup);

/// Floating-point operations a second of the device's matrix product, measured in a moment.
double measure_matmul_rate(const DeviceChoice& device, ComputeType compute);

}  // namespace wgrad::train
