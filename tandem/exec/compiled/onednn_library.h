#pragma once

#include <ATen/Parallel.h>

#include <string>

namespace tandem {

/// Returns the reason why oneDNN's library cannot be used, for an error; "" if it can.
///
/// With Debian's LibTorch the program is linked with oneDNN. LibTorch from PyPI
/// contains a oneDNN; the first call of this function then loads Debian's next to it.
/// Call it before any other function of oneDNN. Thread-safe.
std::string onednn_obstacle();

/// Sets the number of threads for primitives that this thread plans or runs.
void set_onednn_threads(int count);

/// Limits primitives of this thread to one thread while the object exists, for
/// primitives whose order of sums depends on the number of threads.
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
