#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>
#include <vector>

namespace wgrad::cli {

/// Adds one subcommand to the program; what it returns runs it and gives the exit code. One
/// function a file, all listed in main.cc.
using Run = std::function<int()>;

Run add_train(CLI::App& app);
Run add_eval(CLI::App& app);
Run add_data(CLI::App& app);
Run add_generate(CLI::App& app);
Run add_chat(CLI::App& app);
Run add_merge(CLI::App& app);
Run add_export(CLI::App& app);
Run add_report(CLI::App& app);
Run add_verify(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_devices(CLI::App& app);
Run add_info(CLI::App& app);
Run add_kernels(CLI::App& app);
Run add_completion(CLI::App& app);
Run add_manual(CLI::App& app);

/// Exit codes (see --help).
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;

}  // namespace wgrad::cli
