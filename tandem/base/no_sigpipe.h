#pragma once

#include <csignal>
#include <ctime>

namespace tandem {

/// What we or LibTorch's transports write to may have been closed at the other end, and
/// the SIGPIPE of that would end the process. While one of these lives this thread gets
/// none, nor do, ever, the threads it starts; it then takes the one that may have come.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 0) {
      const timespec now{};
      sigtimedwait(&pipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace tandem
