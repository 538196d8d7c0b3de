#pragma once

#include <memory>

#include "tandem/model/model.h"

namespace tandem {

/// Returns a model that runs a graph with the interpreter (graph/interpreter.h). The
/// model shares the tensors of the graph's parameters and buffers. `stack_statistics`
/// is that of ModelOptions.
///
/// Throws the errors of verify().
[[nodiscard]] std::unique_ptr<Model> make_graph_model(
    Graph graph, StackFunction stack_statistics = {});

/// Converts a graph between float32 and float64. `dtype` is the new dtype of all values
/// (graph.h) and their tensors, and of the nodes' arguments that are dtypes. Other
/// dtypes, such as int64, do not change.
void convert(Graph& graph, at::ScalarType dtype);

/// Sets the probability of each dropout in a graph to 0, also of dropout in attention.
void turn_dropout_off(Graph& graph);

}  // namespace tandem
