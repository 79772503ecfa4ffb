#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/setup.h"

namespace wgrad::train {

/// "2.14 GB", as the plan of `wgrad train --plan` says it.
std::string gigabytes(int64_t bytes);

/// What to tell the user whose run does not fit: each option that alone makes it fit into
/// `available` bytes, with what the run then takes, or the combination where none does. Every one
/// of them is planned, on each of `devices`. Changes the setup, which is of no use afterwards.
std::string ways_to_fit(RunSetup& setup, Recompute recompute,
                        const std::vector<DeviceChoice>& devices, int64_t available);

}  // namespace wgrad::train
