#include "tandem/base/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#include "tandem/base/error.h"
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

// True if this process has the thread that receives the signals.
bool has_receiver = false;

// fork() copies the signal mask of the calling thread, but not the receiver.
extern "C" void receive_in_forked_child() {
  if (has_receiver) {
    has_receiver = false;
    const sigset_t caught = caught_signals();
    pthread_sigmask(SIG_UNBLOCK, &caught, nullptr);
  }
}

[[noreturn]] void receive() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  const sigset_t caught = caught_signals();
  pthread_sigmask(SIG_UNBLOCK, &caught, nullptr);
  while (true) {
    pause();
  }
}

// oneDNN's matrix products move the stack pointer into heap buffers while they run. On
// such a thread, the kernel would write a signal handler's frame over the data in those
// buffers. So the handler runs on a thread that only waits. Alternate stacks do not
// suffice: threads do not inherit them, and OpenMP may replace its threads at any time.
void start_receiver() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, receive_in_forked_child);
  TANDEM_CHECK(registered == 0, "no memory for a fork handler");
  if (!has_receiver) {
    try {
      std::thread(receive).detach();
    } catch (const std::system_error& error) {
      throw Error(
          "[signals] cannot start the thread that receives signals: " +
          first_line(error));
    }
    has_receiver = true;
  }
}

// Effect of the signals of exit_on_signals().
std::string exit_line;
int exit_code_of_signals = 1;

extern "C" void exit_at_once(int) {
  [[maybe_unused]] const auto written =
      write(STDERR_FILENO, exit_line.data(), exit_line.size());
  _exit(exit_code_of_signals);
}

}  // namespace

sigset_t caught_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    sigaddset(&set, number);
  }
  return set;
}

void hold_signals() {
  sigset_t set = caught_signals();
  // A blocked signal becomes pending even if it is ignored.
  if (ignores_hangup()) {
    sigdelset(&set, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void exit_on_signals(int code, const std::string& line) {
  exit_line = line + "\n";
  exit_code_of_signals = code;
  struct sigaction action {};
  action.sa_handler = exit_at_once;
  sigset_t set = caught_signals();
  sigdelset(&set, SIGUSR1);
  action.sa_mask = set;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (number != SIGHUP || !ignores_hangup()) {
      sigaction(number, &action, nullptr);
    }
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void catch_signals() {
  // The receiver unblocks the signals, so it starts after the handlers are set.
  const sigset_t caught = caught_signals();
  pthread_sigmask(SIG_BLOCK, &caught, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  // A second signal ends the process as usual, except under tandem's launcher. There
  // one signal may arrive twice: from a terminal or service manager, and from the
  // launcher. The launcher itself kills its ranks after a grace period.
  action.sa_flags = SA_RESTART | (get_env("TANDEM_STORE") ? 0 : SA_RESETHAND);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (number != SIGHUP || !ignores_hangup()) {
      sigaction(number, &action, nullptr);
    }
  }
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  start_receiver();
}

void stop_on_sigusr1(bool stop) {
  sigusr1_stops = stop;
  if (stop && take_save_request()) {
    stop_number = SIGUSR1;
  }
}

int pending_stop_signal() {
  sigset_t pending;
  sigpending(&pending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (sigismember(&pending, number) == 1) {
      return number;
    }
  }
  return 0;
}

void throw_if_stopped() {
  if (const int number = pending_stop_signal(); number != 0) {
    throw Error("stopped by SIG" + std::string(sigabbrev_np(number)));
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
