#pragma once

#include <string>

#include "train/setup.h"

namespace wgrad::train {

/// The text of run.json: what a run is, beside its settings. Device, parameters, the planned memory
/// and of its rows their number, tokens, counted tokens and a histogram of their lengths.
std::string summary_json(const RunSetup& setup, const TrainPlan& plan);

}  // namespace wgrad::train
