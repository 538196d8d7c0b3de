#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/graph/effects.h"
#include "tandem/graph/graph.h"
#include "tandem/graph/operators.h"

namespace tandem {

/// Runs a graph through LibTorch's dispatcher, with autograd if gradients are enabled.
///
/// ForwardContext::training selects training or evaluation mode. Batch norm and dropout
/// whose argument for the mode is false are frozen: they are always in evaluation mode.
/// A ReLU overwrites its input if
/// neither another node nor backward reads the input.
///
/// Evaluation changes neither parameters nor buffers. A node that changes a buffer does
/// not run then, so later nodes read the buffer as training left it. If nodes overwrite
/// the whole buffer before they read it, they run on a copy. Nodes that change a
/// parameter also run on a copy. The input and constants are copied in both modes.
///
/// Training with gradients does not keep the values of the nodes in `recomputed`;
/// backward runs these nodes again (core/recompute.h). Nodes that change a buffer run
/// once, and so do updates of running statistics.
///
/// An error of an operator is an Error that names the node and its source line. Several
/// threads can run evaluations at the same time. Only one thread can run training,
/// because training changes buffers.
class Interpreter {
 public:
  /// Prepares the calls of operators. `graph` must pass verify() and outlive the
  /// interpreter. `stack_statistics` is that of ModelOptions, and may be empty.
  ///
  /// `device` is the device of the input, the parameters and the buffers. The
  /// interpreter copies the graph's constants to this device, and operators create
  /// their tensors there. `recomputed` has the segments of recomputable()
  /// (graph/segments.h).
  Interpreter(
      const Graph& graph, StackFunction stack_statistics, at::Device device = at::kCPU,
      const std::vector<NodeRange>& recomputed = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Runs the graph and returns its output. `input` has the shape of the graph's input,
  /// with any number of samples.
  at::Tensor run(const at::Tensor& input, const ForwardContext& context) const;

 private:
  struct Step;
  struct Segment;
  class Pass;

  void plan_copies(const Effects& effects);
  void find_last_uses();
  void find_crossing_values();

  const Graph& graph_;
  StackFunction stack_statistics_;
  at::Device device_;
  std::vector<Step> steps_;
  // In order.
  std::vector<Segment> segments_;
  // Constants on the device, by ValueId; undefined for other values.
  std::vector<at::Tensor> constants_;
  // Values that each pass copies, because its nodes change them.
  std::vector<ValueId> copied_;
  std::vector<ValueId> copied_in_evaluation_;
};

}  // namespace tandem
