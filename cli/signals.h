#pragma once

#include <atomic>

namespace wgrad::cli {

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and all that it starts, and takes them in a
/// thread of its own: a handler would run on the stack of whichever thread is interrupted, and
/// kernels of the CPU's matrix library keep data where it would write. Called once, before any
/// thread is started.
void take_signals();

/// While it lives, the first of these signals sets stop() rather than end the program.
class SignalStop {
 public:
  /// `note` is printed on standard error when the signal comes; null: nothing is.
  explicit SignalStop(const char* note = nullptr);
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  const std::atomic<bool>* stop() const;
  /// 128 + the signal's number; 0 where none came.
  int exit_code() const;
};

}  // namespace wgrad::cli
