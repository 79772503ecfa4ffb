#pragma once

namespace wgrad::gpu {

/// While alive, holds back what native code writes to the standard error stream; at the end passes
/// it on without the lines known to be harmless. Dawn and the drivers write there directly while
/// adapters are looked up, and offer no other way to take their messages.
class StderrFilter {
 public:
  StderrFilter();
  ~StderrFilter();
  StderrFilter(const StderrFilter&) = delete;
  StderrFilter& operator=(const StderrFilter&) = delete;

 private:
  int saved_ = -1;     ///< the real stream; -1 where nothing is held back
  int captured_ = -1;  ///< the file that takes the text
};

}  // namespace wgrad::gpu
