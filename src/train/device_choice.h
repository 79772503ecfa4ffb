#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "ops/context.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// Where a command runs, decided before anything is opened.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  gpu::AdapterInfo adapter;  ///< of a GPU
  std::string selector;
  std::string name() const;
};

/// auto: a discrete GPU, else an integrated one, else the CPU; never a software driver.
/// cpu, gpu, gpu:NAME, software as asked; an input error where there is no such device.
DeviceChoice choose_device(const std::string& selector);

/// GPUs of so much memory as they are met, with f16 matrix units and without: to plan for one that
/// is not here, never to open.
std::vector<DeviceChoice> usual_gpus(int64_t memory_bytes);

/// f16 operands where the device has f16 subgroup matrices (kAuto), or as asked; an input error
/// where the device cannot.
ComputeType choose_compute(Precision precision, const DeviceChoice& device);

std::unique_ptr<Context> open_context(const DeviceChoice& device, ComputeType compute);
/// A plan of the same device.
std::unique_ptr<Context> plan_context(const DeviceChoice& device, ComputeType compute);

/// Memory that a run can take on the device: what is free of the host's, all of a GPU's own; 0
/// where the driver does not say.
int64_t available_memory(const DeviceChoice& device);

}  // namespace wgrad::train
