#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/verify.h"

/// What the ten exported kernels must compute, whoever runs them: `wgrad verify` from the program's
/// own table, a test from the files and manifest.json alone.
namespace wgrad::ops {

using ExportedBuffers = std::map<std::string, std::vector<uint32_t>>;
using ExportedFields = std::map<std::string, double>;
/// Runs a kernel by name and replaces the contents of the buffers that it writes.
using ExportedRun =
    std::function<void(const std::string& kernel, ExportedBuffers&, const ExportedFields&)>;

struct ExportedCase {
  std::string_view kernels, what;
  void (*check)(VerifyCheck& check, const ExportedRun& run);
};

const std::vector<ExportedCase>& exported_cases();
VerifyResult run_exported(const ExportedCase& c, const ExportedRun& run);

}  // namespace wgrad::ops
