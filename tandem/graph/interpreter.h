#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/graph/graph.h"
#include "tandem/graph/operators.h"

namespace tandem {

/// Runs a graph through LibTorch's dispatcher, with autograd if gradients are enabled.
///
/// ForwardContext::training selects training or evaluation mode; the mode in the
/// arguments of batch norm and dropout has no effect. Nodes that change a buffer run in
/// training only. A ReLU overwrites its input if neither another node nor backward
/// reads the input. Several threads can run evaluations at the same time. Only one
/// thread can run training, because training changes buffers.
class Interpreter {
 public:
  /// Prepares the calls of operators. `graph` must pass verify() and outlive the
  /// interpreter. `stack_statistics` is that of ModelOptions, and may be empty.
  ///
  /// `device` is the device of the input, the parameters and the buffers. The
  /// interpreter copies the graph's constants to this device, and operators create
  /// their tensors there.
  Interpreter(
      const Graph& graph, StackFunction stack_statistics, at::Device device = at::kCPU);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Runs the graph and returns its output. `input` has the shape of the graph's input,
  /// with any number of samples.
  at::Tensor run(const at::Tensor& input, const ForwardContext& context) const;

 private:
  struct Step;
  class Pass;

  const Graph& graph_;
  StackFunction stack_statistics_;
  std::vector<Step> steps_;
  // Constants on the device, by ValueId; undefined for other values.
  std::vector<at::Tensor> constants_;
};

}  // namespace tandem
