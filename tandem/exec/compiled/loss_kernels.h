#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/model/loss.h"

namespace tandem {

// Functions that compute the losses of model/loss.h for contiguous float32 outputs.
// They allocate no memory. In small models, LibTorch's operators for the loss take
// longer than the layers.

/// Loss and metric (metric_sum()), summed over the targets.
struct LossSums {
  double loss = 0;
  double metric = 0;
};

/// Returns the summed loss and metric. `loss.own` is empty. `output` is float32,
/// samples x classes. `targets` are int64 classes, or as many float32 numbers as
/// outputs.
///
/// Throws DataError if a target is neither the index of a column of `output` nor
/// loss.ignore_index.
LossSums sum_losses(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Computes the gradient of the summed loss with respect to `output` and multiplies it
/// by `weight`. Writes the result to `grad`, in the shape of `output`.
void loss_gradient(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets,
    double weight, float* grad);

}  // namespace tandem
