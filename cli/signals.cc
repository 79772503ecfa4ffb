#include "signals.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

namespace wgrad::cli {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> signal_number{0};

using Clock = std::chrono::steady_clock;

/// timeout(1) and others send a signal to a process and then to its group: within this it is one.
constexpr std::chrono::milliseconds kSameSignal{300};

std::mutex mutex;  // of the next three
bool awaited = false;
const char* note_of_first = nullptr;
Clock::time_point time_of_first;

bool is_awaited(int number) {
  const std::lock_guard lock(mutex);
  if (!awaited) return false;
  if (signal_number != 0) return Clock::now() - time_of_first < kSameSignal;
  signal_number = number;
  time_of_first = Clock::now();
  stop_requested = true;
  if (note_of_first != nullptr) {
    std::fprintf(stderr, "%s%s\n", isatty(STDERR_FILENO) != 0 ? "\n" : "", note_of_first);
  }
  return true;
}

void end_program(int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(number);
}

}  // namespace

void take_signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    // nohup(1) has hang-ups ignored.
    if (signal(number, SIG_DFL) == SIG_IGN && number == SIGHUP) {
      signal(number, SIG_IGN);
      continue;
    }
    sigaddset(&taken, number);
  }
  pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  std::thread([taken] {
    while (true) {
      int number = 0;
      if (sigwait(&taken, &number) == 0 && !is_awaited(number)) end_program(number);
    }
  }).detach();
}

SignalStop::SignalStop(const char* note) {
  const std::lock_guard lock(mutex);
  stop_requested = false;
  signal_number = 0;
  note_of_first = note;
  awaited = true;
}

SignalStop::~SignalStop() {
  const std::lock_guard lock(mutex);
  awaited = false;
}

const std::atomic<bool>* SignalStop::stop() const { return &stop_requested; }

int SignalStop::exit_code() const {
  const int number = signal_number;
  return number == 0 ? 0 : 128 + number;
}

}  // namespace wgrad::cli
