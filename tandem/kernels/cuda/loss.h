#pragma once

#include <cstdint>

#include "tandem/config/options/model_options.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

/// The factor on a gradient, on the device.
struct LossWeight {
  // Of the step: model/loss.h, loss_weight().
  const double* weight = nullptr;
  // Times this, GradScaler's; null: nothing.
  const float* scale = nullptr;
};

/// What sum_losses() and loss_gradient() of exec/compiled/loss_kernels.h compute, on
/// the device: adds {loss, correct, samples} to `sums`, three numbers, in an order that
/// depends on nothing; and grad = the weight times the gradient of the summed loss,
/// unless `grad` is null. T: float or double; a float's loss above float32's largest
/// number is infinite.
///
/// `output` and `grad`: samples x classes. A sample whose class is no column of the
/// output has NaN for its loss and 0 for its gradient. A NaN among outputs makes the
/// loss NaN. With `log_softmax`, samples x classes, and cross_entropy or
/// softmax_cross_entropy, `output` has what a log-softmax takes: what it gives goes
/// there, and neither loss differs for it.
///
/// One block of 32 warps, a warp for a sample at a time: 64 samples of 10 classes take
/// about as long as the launch; the time grows with samples / 32.
template <typename T>
void class_loss(
    LossKind kind, int64_t samples, int64_t classes, const T* output,
    const int64_t* targets, const LossWeight& weight, double* sums, T* grad,
    T* log_softmax, Stream stream);

/// The same of squared errors; `targets` as `output`: samples x elements. None is
/// correct.
template <typename T>
void squared_loss(
    int64_t samples, int64_t elements, const T* output, const T* targets,
    const LossWeight& weight, double* sums, T* grad, Stream stream);

}  // namespace tandem::cuda
