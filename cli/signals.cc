#include "signals.h"

#include <csignal>

namespace wgrad::cli {
namespace {

// A handler can reach nothing but objects of static storage.
std::atomic<bool> stop_requested{false};
volatile std::sig_atomic_t signal_number = 0;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int number) {
  signal_number = number;
  stop_requested.store(true, std::memory_order_relaxed);
  std::signal(number, SIG_DFL);
}

}  // namespace

SignalStop::SignalStop() {
  stop_requested = false;
  signal_number = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

SignalStop::~SignalStop() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>* SignalStop::stop() const { return &stop_requested; }

int SignalStop::exit_code() const { return signal_number == 0 ? 0 : 128 + signal_number; }

}  // namespace wgrad::cli
