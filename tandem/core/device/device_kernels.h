#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tandem/core/batch_place.h"
#include "tandem/core/step_scalars.h"
#include "tandem/core/updates/adadelta.h"
#include "tandem/core/updates/adam.h"
#include "tandem/core/updates/sgd.h"

namespace tandem {

/// The kernels of a device that is not main memory, for what the library computes
/// itself and LibTorch has no operator for. They are put in the stream that LibTorch's
/// operators on the device are put in, so nothing waits for them here. What is given to
/// them lives until they have run. Thread-safe.
///
/// Tensors are on the device, float32 or float64, and contiguous. Bits are those of the
/// functions for main memory (optim/, model/dropout.h).
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// One step of an optimizer over neighbouring elements of one parameter group:
  /// parameters, gradients, state, flat and of the same size. `step`: on the device.
  /// `momentum_buffer`: undefined without momentum.
  virtual void update_sgd(
      const at::Tensor& param, const at::Tensor& grad,
      const at::Tensor& momentum_buffer, const SgdSettings& settings,
      const GroupConstants& group, const StepScalars* step) const = 0;

  /// `max_exp_avg_sq`: undefined without amsgrad.
  virtual void update_adam(
      const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
      const at::Tensor& exp_avg_sq, const at::Tensor& max_exp_avg_sq,
      const AdamSettings& settings, const GroupConstants& group,
      const StepScalars* step) const = 0;

  virtual void update_adadelta(
      const at::Tensor& param, const at::Tensor& grad, const at::Tensor& square_avg,
      const at::Tensor& acc_delta, const AdadeltaSettings& settings,
      const GroupConstants& group, const StepScalars* step) const = 0;

  /// Fills `mask`, samples x elements, as dropout_mask() of model/dropout.h does.
  /// `place`: in main memory, read before this returns.
  virtual void fill_dropout_mask(
      const BatchPlace& place, int64_t layer, double p,
      const at::Tensor& mask) const = 0;
};

}  // namespace tandem
