#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tandem {

/// A function of tensors. `again` is true if backward runs it.
using RecomputedFunction = std::function<std::vector<at::Tensor>(
    const std::vector<at::Tensor>& inputs, bool again)>;

/// Returns function(inputs, false). Autograd keeps only `inputs` for backward, which
/// computes function(inputs, true) and its gradients.
///
/// Gradients arrive in the inputs and in all other tensors that the function uses, such
/// as parameters. A parameter's hooks run once per backward. The function may call
/// recompute() itself. Backward repeats autocast. Second derivatives and `retain_graph`
/// work. If gradients are disabled, only runs the function.
///
/// Both runs must use the same tensors that require gradients, and return tensors of
/// equal shapes and dtypes. The function must not change its inputs. Backward throws
/// Error if it runs a second time without `retain_graph`, or if the runs differ.
///
/// Thread-safe for different calls.
///
/// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, and
/// torch/utils/checkpoint.py with use_reentrant=False.
[[nodiscard]] std::vector<at::Tensor> recompute(
    RecomputedFunction function, const std::vector<at::Tensor>& inputs);

}  // namespace tandem
