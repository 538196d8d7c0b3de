#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

/// While it lives, those operators of this thread that gain from it compute on `device`
/// in bfloat16, with LibTorch's autocast: convolutions and matrix products, not sums or
/// losses. Its end restores the state before.
class Autocast {
 public:
  /// `on` false: does nothing.
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
