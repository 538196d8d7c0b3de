#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/graph/graph.h"

namespace tandem {

/// A function with parameters, such as a torch::nn module.
struct TraceableFunction {
  std::function<at::Tensor(const at::Tensor&)> forward;
  // The tensors that forward() uses, not copies, because a trace recognizes a tensor by
  // its identity.
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  // Sets training or evaluation mode. May be empty.
  std::function<void(bool training)> set_training;
};

/// Error with the reason why a function has no graph. The reason is a clause of one
/// line without a full stop, such as "batches of 2 and 3 samples call different
/// operators: aten::relu and aten::tanh".
class NoGraph : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns the graph of a function, recorded by LibTorch's tracer. Throws NoGraph.
///
/// A trace contains the integers of one call, such as x.size(0), and one branch of each
/// `if`. So the function is traced in training and in evaluation mode with 2 and 3
/// samples. Integers that differ become sizes. Then the graph and the function run
/// again, also with another number of samples. Their outputs, gradients and buffers
/// must agree, except for rounding. In training mode, they run only if the function has
/// no dropout. An `if` that chooses the same branch in all these calls remains
/// undetected.
///
/// The tracer records internal calls of LibTorch's operators. trace() replaces a
/// recorded convolution by conv2d, and a product with a transposed parameter by linear.
///
/// `sample_shape` is the shape of one sample of the input, and `dtype` is the dtype of
/// the input. Calls `set_training` and ends in training mode. Afterwards, parameters,
/// buffers and LibTorch's generator of the CPU have their former values. Not
/// thread-safe for functions that share tensors.
Graph trace(
    const TraceableFunction& function, const std::vector<int64_t>& sample_shape,
    at::ScalarType dtype);

}  // namespace tandem
