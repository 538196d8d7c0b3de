#pragma once

#include <pthread.h>

#include <csignal>

namespace tandem {

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
