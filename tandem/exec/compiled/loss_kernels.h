#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/model/loss.h"

namespace tandem {

// Functions of model/loss.h, written for contiguous float32 rows. They allocate
// nothing. In small models, LibTorch's operators need more time than the layers.

/// Loss summed over the samples, and number of correct samples.
struct LossSums {
  double loss = 0;
  double correct = 0;
};

/// Returns the summed loss and the number of correct samples. `loss.own` is empty.
/// `output` is float32, samples x classes. `targets` are int64 classes; for MSE,
/// float32 values in the shape of `output`.
///
/// Throws DataError if a target is neither a column of the output nor
/// loss.ignore_index.
LossSums sum_losses(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Writes `weight` times the gradient of the summed loss with respect to `output` to
/// `grad`, samples x classes.
void loss_gradient(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets,
    double weight, float* grad);

}  // namespace tandem
