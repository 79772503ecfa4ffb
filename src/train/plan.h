#pragma once

#include "train/setup.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// Decides `recompute` where it is auto, by running the largest step on a plan context, and finds
/// the run's memory. Throws where the run cannot fit, naming what would make it fit.
TrainPlan make_plan(RunSetup& setup);

/// The plan of a run on a GPU of so much memory, which need not be there; `options.device` is not
/// looked at and no time is estimated. It is the larger of two: for a GPU with f16 matrix units and
/// for one without, where Precision::kAuto is f32.
TrainPlan plan_for_gpu(const TrainOptions& options, TrainObserver& observer, int64_t memory_bytes);

/// Floating-point operations a second of the device's matrix product, measured in a moment.
double measure_matmul_rate(const DeviceChoice& device, ComputeType compute);

}  // namespace wgrad::train
