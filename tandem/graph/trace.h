#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/graph/graph.h"

namespace tandem {

/// A function with parameters, such as a torch::nn module.
struct TraceableFunction {
  std::function<at::Tensor(const at::Tensor&)> forward;
  // The tensors themselves, not copies of them: a trace recognizes them by identity.
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  // Sets the mode. May be empty.
  std::function<void(bool training)> set_training;
};

/// The graph of a function, or the reason why it has none.
struct Traced {
  std::optional<Graph> graph;
  // A clause without a full stop, such as "batches of 2 and 3 samples call different
  // operators: aten::relu and aten::tanh".
  std::string why_not;
};

/// Returns the graph of a function, recorded by LibTorch's tracer.
///
/// A trace contains the integers of one call, such as x.size(0), and one branch of each
/// `if`. So the function is traced in training and in evaluation mode with 2 and 3
/// samples. Integers that differ become sizes. Then the graph and the function run with
/// other numbers of samples, and must have equal outputs, gradients and buffers. In
/// training mode, they run only if the function has no dropout. An `if` that chooses
/// the same branch in all these calls remains undetected.
///
/// The trace calls parts of LibTorch's operators. A convolution becomes conv2d again,
/// and a product with a transposed parameter becomes linear.
///
/// The input has `samples` x `sample_shape` values. Calls `set_training` and ends in
/// training mode. Afterwards, parameters, buffers and LibTorch's generator of the CPU
/// have their former values. Not thread-safe for functions that share tensors.
Traced trace(
    const TraceableFunction& function, const std::vector<int64_t>& sample_shape,
    at::ScalarType dtype);

}  // namespace tandem
