#pragma once

#include <vector>

#include "ops/verify.h"

namespace wgrad::train {

/// What training promises, on a small random model on the context's device: further cases of
/// `wgrad verify`.
std::vector<ops::VerifyCase> training_cases();

}  // namespace wgrad::train
