#pragma once

#include <ATen/Parallel.h>

namespace tandem {

/// Sets the number of threads of LibTorch and oneDNN while the object exists.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) {
    at::set_num_threads(count);
  }
  ~Threads() {
    at::set_num_threads(before_);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace tandem
