#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"

namespace wgrad::ops {

/// One kernel on one shape, compared with the CPU's double result (or with a contract).
struct VerifyResult {
  std::string kernel;      ///< "rms_norm_backward"
  std::string what;        ///< the shape and the inputs: "rows 33, n 257, 1e-5..1e5"
  std::string path;        ///< what of the device was used: "core", "subgroups", "f16", "matrix"
  double worst_error = 0;  ///< of the element that came nearest to its bound or passed it furthest
  double bound = 0;        ///< of that element
  std::string where;       ///< that element: "grad_x[12] = 1.5, expected 1.25"
  bool passed = false;
};

/// How much is run: enough for a test on a software device in a minute, or everything.
enum class VerifyLevel { kQuick, kFull };

struct VerifyCase {
  std::string kernel, what;
  /// May throw wgrad::Error; run_case() turns that into a failed result.
  std::function<VerifyResult(Context&)> run;
};

/// Every case of every family for this context's device.
std::vector<VerifyCase> verify_cases(const Context& ctx, VerifyLevel level);
VerifyResult run_case(const VerifyCase& c, Context& ctx);

/// A family of kernels appends its cases; the families are listed in verify.cc.
using VerifyFamily = void (*)(const Context& ctx, VerifyLevel level,
                              std::vector<VerifyCase>& cases);

/// Collects comparisons of one case and keeps the worst.
class VerifyCheck {
 public:
  /// `path`: see VerifyResult.
  VerifyCheck(std::string kernel, std::string what, std::string path);

  /// |seen[i] - expected[i]| <= bound(i) for all i. A value that is not finite fails.
  void compare(std::string_view name, std::span<const float> seen, std::span<const double> expected,
               const std::function<double(size_t)>& bound);
  /// One number against its bound.
  void measure(std::string_view name, double error, double bound);
  /// A condition without a number: "exactly 0 where the label does not count".
  void require(bool holds, std::string_view condition);

  VerifyResult result() const;

 private:
  void keep(double error, double bound, std::string where);

  VerifyResult result_;
  double worst_ratio_ = -1.0;
  bool failed_ = false;
};

/// Inputs that are the same on every machine (splitmix64 of seed and index).
/// Signed values in [-limit, limit].
std::vector<float> verify_uniform(size_t n, uint64_t seed, float limit = 1.0f);
/// Signed magnitudes spread evenly over 10^low .. 10^high.
std::vector<float> verify_decades(size_t n, uint64_t seed, double low = -5.0, double high = 5.0);
std::vector<double> to_double(std::span<const float> values);

/// Half an ulp of 1 in f32: the relative error of one rounding.
inline constexpr double kF32Rounding = 0x1p-24;

/// "core" or "subgroups": what the reductions of this context's kernels use.
std::string reduction_path(const Context& ctx);

}  // namespace wgrad::ops
