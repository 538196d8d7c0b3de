#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "tandem/graph/graph.h"
#include "tandem/graph/trace.h"

namespace torch::jit {
struct Graph;
}  // namespace torch::jit

namespace tandem {

/// Returns a graph without nodes. Its values are an input of the shape `input_shape`,
/// and the parameters and buffers of `function`.
Graph state_of(
    const TraceableFunction& function, const std::vector<int64_t>& input_shape,
    at::ScalarType dtype);

/// Converts a recording of LibTorch's tracer to a graph whose sizes are constants. The
/// inputs of the recording are the values of `state`, in the same order.
///
/// The tracer records the internal calls of an operator, such as _convolution() in
/// conv2d(). The graph has the operators that a program calls, such as conv2d().
///
/// Throws NoGraph for a recording that a graph cannot express.
Graph graph_of(const torch::jit::Graph& recording, const Graph& state);

/// Returns a copy of a graph without the nodes that its output does not need. Keeps the
/// nodes that change a buffer only if `buffer_updates` is true. Gives nodes and values
/// new names and numbers.
Graph needed_part(const Graph& from, bool buffer_updates);

}  // namespace tandem
