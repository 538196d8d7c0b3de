#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace tandem {

/// Function that stacks the tensors of all ranks in rank order. The result has the
/// shape number of ranks x the shape of `mine`. Every rank must call the function the
/// same number of times. Models call it, so that they need not depend on Communicator.
using StackFunction = std::function<at::Tensor(const at::Tensor& mine)>;

/// Normalizes a batch in training with the statistics of all ranks' samples.
///
/// `x` has the shape samples x channels x ..., and the dtype of the parameters (float32
/// or float64) or bfloat16. A rank may have any number of samples, even none. Each rank
/// contributes 2 x channels + 1 numbers in forward and 2 x channels in backward. The
/// gradients of weight and bias cover this rank's samples only. Updates the running
/// statistics, with equal bits on all ranks. Throws the error of
/// check_values_per_channel() with `name` for the samples of all ranks.
///
/// Source: torch/nn/modules/_functions.py, SyncBatchNorm (which needs a GPU). Ranks'
/// statistics are combined as in Chan et al., "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979.
at::Tensor sync_batch_norm(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double epsilon,
    const StackFunction& stack, const std::string& name);

}  // namespace tandem
