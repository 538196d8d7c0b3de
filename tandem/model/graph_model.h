#pragma once

#include <memory>

#include "tandem/model/model.h"

namespace tandem {

/// Options of make_graph_model().
struct GraphModelOptions {
  // See ModelOptions::stack_statistics.
  StackFunction stack_statistics;
  // False makes dropout return its input.
  bool dropout = true;
};

/// Returns a model that runs a graph with the interpreter (graph/interpreter.h). The
/// model shares the tensors of the graph's parameters and buffers.
///
/// Throws the errors of verify().
[[nodiscard]] std::unique_ptr<Model> make_graph_model(
    Graph graph, const GraphModelOptions& options = {});

/// Converts the floating-point tensors of a graph, and the dtypes in arguments that are
/// equal to theirs, to `dtype`: float32 or float64.
void convert(Graph& graph, at::ScalarType dtype);

}  // namespace tandem
