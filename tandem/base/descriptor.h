#pragma once

#include <unistd.h>

#include <utility>

namespace tandem {

/// Owner of a file descriptor, which the destructor closes. Movable, not copyable.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    const Descriptor old(std::exchange(fd_, other.release()));
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  int fd() const {
    return fd_;
  }
  explicit operator bool() const {
    return fd_ >= 0;
  }
  /// Returns the descriptor, which the caller then owns.
  int release() {
    return std::exchange(fd_, -1);
  }

 private:
  int fd_ = -1;
};

}  // namespace tandem
