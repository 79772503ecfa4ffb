#pragma once

#include <CLI/App.hpp>
#include <string>

#include "wgrad/train.h"

namespace wgrad::cli {

/// Adds every training option to a command, bound to `options`.
void add_train_options(CLI::App& app, TrainOptions& options);

/// Adds an option that names files of rows: with commas between them, or given several times.
CLI::Option* add_data_option(CLI::App& app, const std::string& name, std::string& files,
                             const std::string& help);

/// Adds --device to a command.
void add_device_option(CLI::App& app, std::string& device);

}  // namespace wgrad::cli
