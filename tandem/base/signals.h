#pragma once

#include <pthread.h>

#include <csignal>
#include <string>

namespace tandem {

/// Installs signal handlers that set flags for a training loop.
///
/// SIGTERM, SIGINT and SIGHUP (a closed terminal, except under nohup) request to save a
/// checkpoint and stop. SIGUSR1 requests to save, or to save and stop
/// (stop_on_sigusr1()). The flags are global variables, because a signal handler cannot
/// access an object.
///
/// Call it from the main thread before LibTorch computes. The call starts a thread that
/// runs the handlers, and blocks the signals in the calling thread and in all threads
/// that start later. Threads that started earlier do not block the signals. A handler
/// that interrupts LibTorch's kernels in such a thread can corrupt memory.
///
/// A child of fork() handles the signals on its main thread. Programs that system(),
/// popen() or posix_spawn() start inherit the blocked signals; Process unblocks them.
/// Throws Error if the thread cannot be started.
void catch_signals();

/// Returns the signals that catch_signals() handles.
sigset_t caught_signals();

/// Blocks the signals of catch_signals() in the calling thread, except an ignored
/// SIGHUP. They stay pending, also in a program that this process executes, until that
/// program calls catch_signals().
void hold_signals();

/// Unblocks SIGTERM, SIGINT and SIGHUP, which then print `line` and end the process
/// with `code`, until hold_signals() is called. Call it from the main thread.
void exit_on_signals(int code, const std::string& line);

/// Sets whether SIGUSR1 also requests a stop; the default is false. Also applies to a
/// SIGUSR1 that has arrived but was not yet handled.
void stop_on_sigusr1(bool stop);

/// Returns the signal that requested a stop; 0 if there is none. Thread-safe.
int stop_signal();

/// Returns a blocked signal that has arrived and would stop the run: SIGINT, SIGTERM,
/// SIGHUP or SIGQUIT. Returns 0 if there is none. Leaves the signal pending.
/// Thread-safe.
int pending_stop_signal();

/// Throws Error with the name of the signal if pending_stop_signal() is not 0.
void throw_if_stopped();

/// Returns whether this process ignores SIGHUP, as under nohup.
bool ignores_hangup();

/// Returns whether SIGUSR1 has arrived since the last call. Thread-safe.
bool take_save_request();

/// Blocks all signals in the calling thread while the object exists. A thread that
/// starts meanwhile keeps them blocked, so other threads handle the signals.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all{};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace tandem
