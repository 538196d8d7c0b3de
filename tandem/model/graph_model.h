#pragma once

#include <memory>

#include "tandem/model/model.h"

namespace tandem {

/// Options of make_graph_model().
struct GraphModelOptions {
  // Exchanges batch norm's statistics between ranks, as ModelOptions::stack_statistics.
  StackFunction stack_statistics;
  // If false, dropout returns its input unchanged.
  bool dropout = true;
};

/// Returns a model that runs a graph with the interpreter (graph/interpreter.h). The
/// model shares the tensors of the graph's parameters and buffers.
///
/// Throws the errors of verify().
[[nodiscard]] std::unique_ptr<Model> make_graph_model(
    Graph graph, const GraphModelOptions& options = {});

/// Converts a graph between float32 and float64. `dtype` is the new dtype of all values
/// (graph.h) and their tensors, and of the nodes' arguments that are dtypes. Other
/// dtypes, such as int64, do not change.
void convert(Graph& graph, at::ScalarType dtype);

}  // namespace tandem
