#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

/// While the object exists, LibTorch's autocast to bfloat16 is on for this thread's
/// operators on `device`. Convolutions and matrix products then compute in bfloat16;
/// sums and losses do not. The destructor restores the earlier state.
class Autocast {
 public:
  /// Turns autocast on if `on` is true, otherwise does nothing.
  Autocast(bool on, at::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  at::DeviceType device_;
  bool enabled_before_ = false;
  bool cached_before_ = false;
  at::ScalarType dtype_before_ = at::kBFloat16;
};

}  // namespace tandem
