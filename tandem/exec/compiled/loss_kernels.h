#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/model/loss.h"

namespace tandem {

// The functions of model/loss.h for contiguous float32 rows. They allocate nothing: for
// small models LibTorch's operators take longer than the layers.

/// Loss summed over the samples, and number of correct samples.
struct LossSums {
  double loss = 0;
  double correct = 0;
};

/// Returns the summed loss and the number of correct samples. `output`: samples x
/// classes, float32. `targets`: int64 classes, or for MSE float32 of the output's
/// shape.
///
/// Throws DataError if a class is not a column of the output.
LossSums sum_losses(LossKind kind, const at::Tensor& output, const at::Tensor& targets);

/// Writes weight times the gradient of the summed loss with respect to `output`.
/// `grad`: samples x classes.
void loss_gradient(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets, double weight,
    float* grad);

}  // namespace tandem
