#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/model/loss.h"

namespace tandem {

// Functions that compute the losses of model/loss.h for contiguous float32 outputs.
// They allocate no memory. In small models, LibTorch's operators for the loss take
// longer than the layers.

/// Loss summed over the samples, and number of correct samples.
struct LossSums {
  double loss = 0;
  double correct = 0;
};

/// Returns the summed loss and the number of correct samples. `loss.own` is empty.
/// `output` is float32, samples x classes. `targets` are int64 classes; for MSE,
/// float32 values in the shape of `output`.
///
/// Throws DataError if a target is neither the index of a column of `output` nor
/// loss.ignore_index.
LossSums sum_losses(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Computes the gradient of the summed loss with respect to `output` and multiplies it
/// by `weight`. Writes the result to `grad`, samples x classes.
void loss_gradient(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets,
    double weight, float* grad);

}  // namespace tandem
