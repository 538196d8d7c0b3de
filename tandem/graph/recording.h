#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "tandem/graph/graph.h"
#include "tandem/graph/trace.h"

namespace torch::jit {
struct Graph;
}  // namespace torch::jit

namespace tandem {

/// The reason why a function has no graph.
class NoGraph : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns a graph of an input, the parameters and the buffers, without nodes. The
/// input has the shape `input_shape`.
Graph state_of(
    const TraceableFunction& function, const std::vector<int64_t>& input_shape,
    at::ScalarType dtype);

/// Converts a recording of LibTorch's tracer to a graph whose sizes are constants. The
/// values of `state`, in its order, are the recording's inputs.
///
/// The tracer records the parts of an operator, such as _convolution() of conv2d(). The
/// graph has the operators that a program calls.
///
/// Throws NoGraph for a recording that a graph cannot express.
Graph graph_of(const torch::jit::Graph& recording, const Graph& state);

/// Returns a copy without the nodes whose outputs nothing reads. `buffer_updates`: with
/// the nodes that change a buffer. Names and numbers nodes and values.
Graph needed_part(const Graph& from, bool buffer_updates);

}  // namespace tandem
