#pragma once

#include <atomic>

namespace wgrad::cli {

/// While it lives, SIGINT and SIGTERM set stop() rather than end the program; a second one ends it.
class SignalStop {
 public:
  SignalStop();
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  const std::atomic<bool>* stop() const;
  /// 128 + the signal's number; 0 where none came.
  int exit_code() const;
};

}  // namespace wgrad::cli
