#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

/// While the object exists, LibTorch's autocast to bfloat16 is on for this thread's
/// operators on `device`. Convolutions and matrix products then compute in bfloat16;
/// sums and losses do not. The destructor restores the earlier state. The counterpart
/// of torch.autocast. In a custom loop, it covers forward and the loss:
///
///   torch::Tensor loss;
///   {
///     const tandem::Autocast autocast;
///     loss = torch::nll_loss(net->forward(batch.data), batch.target);
///   }
///   loss.backward();
class Autocast {
 public:
  /// Turns autocast on or off.
  explicit Autocast(bool on = true, at::DeviceType device = at::kCPU);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_before_;
  bool cached_before_;
  at::ScalarType dtype_before_;
};

}  // namespace tandem
