#pragma once

#include <ATen/Parallel.h>

#include <string>

#include "tandem/core/parallel.h"

namespace tandem {

/// Returns an error message if oneDNN's library cannot be used, otherwise "".
///
/// With Debian's LibTorch, the program is linked with Debian's oneDNN. LibTorch from
/// PyPI contains its own oneDNN. In that case, the first call of this function also
/// loads Debian's oneDNN. Call this function before any function of oneDNN.
/// Thread-safe.
std::string onednn_obstacle();

/// Sets the number of threads for oneDNN primitives that the calling thread plans or
/// runs.
void set_onednn_threads(int count);

/// While the object exists, oneDNN primitives of the calling thread use one thread. Use
/// the class for primitives whose order of sums depends on the number of threads.
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

/// Calls `body(i)` for each i in [0, count) on the threads of this rank. The oneDNN
/// primitives of each call use one thread.
template <typename Body>
void for_each_on_lone_thread(int64_t count, const Body& body) {
  parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    const LoneThread lone;
    for (int64_t i = first; i < last; ++i) {
      body(i);
    }
  });
}

}  // namespace tandem
