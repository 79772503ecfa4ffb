#pragma once

#include <CLI/App.hpp>

#include "wgrad/train.h"

namespace wgrad::cli {

/// Adds every training option to a command, bound to `options`.
void add_train_options(CLI::App& app, TrainOptions& options);

/// Adds --device to a command.
void add_device_option(CLI::App& app, std::string& device);

}  // namespace wgrad::cli
