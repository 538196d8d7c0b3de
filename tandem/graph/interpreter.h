#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/graph/graph.h"
#include "tandem/graph/operators.h"

namespace tandem {

/// Runs a graph through LibTorch's dispatcher, with autograd if gradients are enabled.
///
/// Training and evaluation follow ForwardContext::training, whatever the mode in the
/// arguments of batch norm and dropout. Nodes that change a buffer run in training
/// only. A ReLU overwrites its input if nothing else reads it. Several threads can run
/// evaluations at the same time; a run in training changes buffers.
class Interpreter {
 public:
  struct Options {
    // See ModelOptions::stack_statistics.
    StackFunction stack_statistics;
    // False makes dropout return its input.
    bool dropout = true;
  };

  /// Prepares the calls. `graph` must pass verify() and outlive the interpreter.
  Interpreter(const Graph& graph, Options options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Returns the graph's output. `input` has the input's shape, with any number of
  /// samples.
  at::Tensor run(const at::Tensor& input, const ForwardContext& context) const;

 private:
  struct Step;
  class Pass;

  const Graph& graph_;
  Options options_;
  std::vector<Step> steps_;
};

}  // namespace tandem
