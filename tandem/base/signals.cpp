#include "tandem/base/signals.h"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <initializer_list>

#include "tandem/base/output.h"
#include "tandem/base/rank_env.h"

namespace tandem {

namespace {

std::atomic<int> stop_number{0};
std::atomic<bool> save_requested{false};
std::atomic<bool> sigusr1_stops{false};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void on_signal(int number) {
  if (number == SIGUSR1 && !sigusr1_stops) {
    save_requested = true;
  } else {
    stop_number = number;
    hurry_output();
  }
}

// oneDNN's matrix products move the stack pointer into heap buffers while they run.
// Without a separate stack, the kernel would write a signal handler's frame over the
// data in those buffers. The kernel delivers a process's signals to the main thread
// first, where the handler uses this stack. A frame with the registers of AVX-512 and
// AMX has 11 KiB.
void use_separate_stack() {
  alignas(64) static char stack[size_t{64} << 10];
  stack_t before{};
  if (sigaltstack(nullptr, &before) == 0 && (before.ss_flags & SS_DISABLE) != 0) {
    stack_t own{};
    own.ss_sp = stack;
    own.ss_size = sizeof(stack);
    sigaltstack(&own, nullptr);
  }
}

}  // namespace

void catch_signals() {
  use_separate_stack();
  struct sigaction action {};
  action.sa_handler = on_signal;
  // A second signal ends the process as usual, except under tandem's launcher. Under
  // the launcher, a signal may arrive twice: from a terminal or service manager, and
  // from the launcher. The launcher kills its ranks after a grace period.
  action.sa_flags =
      SA_ONSTACK | SA_RESTART | (get_env("TANDEM_STORE") ? 0 : SA_RESETHAND);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (number != SIGHUP || !ignores_hangup()) {
      sigaction(number, &action, nullptr);
    }
  }
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

void stop_on_sigusr1(bool stop) {
  sigusr1_stops = stop;
  if (stop && take_save_request()) {
    stop_number = SIGUSR1;
  }
}

bool ignores_hangup() {
  struct sigaction action {};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

int stop_signal() {
  return stop_number;
}

bool take_save_request() {
  return save_requested.exchange(false);
}

}  // namespace tandem
