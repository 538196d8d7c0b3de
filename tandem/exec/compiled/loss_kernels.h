#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/model/loss.h"

namespace tandem {

/// What model/loss.h computes with LibTorch's operators, over contiguous float32 rows
/// and without allocating: for small models the operators take longer than the layers.

struct LossSums {
  double loss = 0;
  double correct = 0;
};

/// `output`: samples x classes, float32. `targets`: int64 classes, or float32 of the
/// output's shape for MSE.
///
/// Throws DataError for a class that is not a column of the output.
LossSums sum_losses(LossKind kind, const at::Tensor& output, const at::Tensor& targets);

/// grad = weight x the gradient of the summed loss with respect to `output`.
void loss_gradient(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets, double weight,
    float* grad);

}  // namespace tandem
