#pragma once

#include <string>
#include <string_view>

namespace wgrad::gpu {

/// While alive, holds back what native code writes to the standard error stream. Dawn and the
/// drivers write there directly while adapters are looked up and a device is made, and offer no
/// other way to take their messages.
class StderrFilter {
 public:
  StderrFilter();
  ~StderrFilter();
  /// Ends it: what was written, without the lines known to be harmless.
  std::string finish();
  /// Writes it where it was meant to go.
  static void pass_on(std::string_view text);

  StderrFilter(const StderrFilter&) = delete;
  StderrFilter& operator=(const StderrFilter&) = delete;

 private:
  int saved_ = -1;     ///< the real stream; -1 where nothing is held back
  int captured_ = -1;  ///< the file that takes the text
};

}  // namespace wgrad::gpu
