#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace tandem {

/// Stacks all ranks' tensors in rank order: number of ranks x the shape of `mine`.
/// Every rank calls it, the same number of times. (The model layer does not know how
/// ranks talk to each other.)
using StackFunction = std::function<at::Tensor(const at::Tensor& mine)>;

/// Batch normalisation in training, with the statistics of all ranks' samples.
///
/// `x`: samples x channels x ..., float32 or float64 as the parameters are, or
/// bfloat16, of any number of samples, even none: a rank without samples takes part.
/// One exchange of 2 x channels + 1 numbers here and one of 2 x channels in backward;
/// the gradients of weight and bias are those of this rank's samples. Changes the
/// running statistics, to the same bits on all ranks.
///
/// Source: torch/nn/modules/_functions.py, SyncBatchNorm (which needs a GPU). Ranks'
/// statistics are combined as in Chan et al., "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979.
at::Tensor sync_batch_norm(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double epsilon,
    const StackFunction& stack);

}  // namespace tandem
