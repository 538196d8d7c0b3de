#pragma once

#include <ATen/Parallel.h>

#include <string>

namespace tandem {

/// Why oneDNN's library cannot be used, in words for an error; empty if it can. With
/// Debian's LibTorch the linker has bound it. LibTorch from PyPI carries a oneDNN of
/// its own: beside that ours is loaded here, at the first call, and every other call of
/// oneDNN must come after it. Thread-safe.
std::string onednn_obstacle();

/// How many threads a primitive planned or run by this thread may use.
void set_onednn_threads(int count);

/// While it lives, primitives of this thread use no other: for those that add up in
/// another order on more threads.
class LoneThread {
 public:
  LoneThread() : before_(at::get_num_threads()) {
    set_onednn_threads(1);
  }
  ~LoneThread() {
    set_onednn_threads(before_);
  }
  LoneThread(const LoneThread&) = delete;
  LoneThread& operator=(const LoneThread&) = delete;

 private:
  int before_;
};

}  // namespace tandem
