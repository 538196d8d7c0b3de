#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/dropout.h"
#include "tandem/core/numerics.h"
#include "tandem/graph/graph.h"
#include "tandem/graph/sync_batch_norm.h"

namespace tandem {

/// Arguments of a forward pass, in addition to the input.
struct ForwardContext {
  bool training = true;
  // Rounding of the operators' values in fp16 modes; `bf16` has the same effect as
  // `none`.
  Rounding rounding = Rounding::none;
  SampleContext samples;
  // Function that is called with each node and its first output while a graph runs
  // forward, except for nodes that change only a buffer.
  std::function<void(const Node&, const at::Tensor&)> after_node;
  // True if backward runs nodes again because forward did not keep their values. They
  // then change no running statistics.
  bool again = false;
  // Function that is called in backward before nodes run again.
  std::function<void()> before_again;
};

/// A call of an operator that tandem computes itself.
struct OperatorCall {
  const Graph& graph;
  const Node& node;
  // Number of samples in the batch; 0 if unknown.
  int64_t samples;
  at::Device device;
  // Values of the schema's arguments. The operator may move from them.
  std::vector<c10::IValue>& arguments;
  const ForwardContext& context;
  // Exchanges batch norm's statistics between ranks (sync_batch_norm.h). If empty,
  // batch norm uses this rank's samples.
  const StackFunction& stack_statistics;
};

/// Values that are rounded to 16 bits when an operator runs forward and backward
/// (core/numerics.h).
enum class RoundedValues {
  // No values, because the output has only elements of the input, which is already
  // rounded.
  none,
  output,
  // Inputs, parameters and output, for convolutions and matrix products.
  all,
  // The gradient of the input; in fp16_o2 also the output.
  output_in_o2,
};

/// Properties of an operator, as bits.
enum OperatorTrait : unsigned {
  kNoOperatorTrait = 0,
  // Backward reads only the inputs, so the next operator may overwrite the output.
  kKeepsOnlyInput = 1,
  // The argument "p" is the probability of dropout.
  kIsDropout = 2,
  kIsBatchNorm = 4,
  // Rearranges values without computing, so its cost is 0.
  kIsView = 8,
  // Reads or writes files, which a network from an untrusted source must not do.
  kUsesFiles = 16,
};

/// Properties of an operator of ATen. Operators without a row run through LibTorch's
/// dispatcher. Their cost depends only on the number of elements that they write.
struct OperatorRow {
  // Name without overload, such as "aten::conv2d".
  const char* name;
  RoundedValues rounds = RoundedValues::output;
  // Bits of OperatorTrait.
  unsigned traits = kNoOperatorTrait;
  // Returns the number of multiplications for one sample. Null if there are none.
  double (*multiplications)(const Graph& graph, const Node& node) = nullptr;
  // Computes the operator. Null if LibTorch's dispatcher or `run_list` computes it.
  at::Tensor (*run)(const OperatorCall& call) = nullptr;
  // Schema of an operator that some LibTorch versions lack; null for other operators.
  // If LibTorch lacks the operator, `run` computes it.
  const char* schema = nullptr;
  // Computes an operator that returns several tensors; null for other operators.
  std::vector<c10::IValue> (*run_list)(const OperatorCall& call) = nullptr;

  /// Returns whether tandem computes the operator.
  bool runs() const {
    return run != nullptr || run_list != nullptr;
  }
  bool has(OperatorTrait trait) const {
    return (traits & trait) != 0;
  }
};

/// Returns the row of an operator, such as "aten::conv2d". If the operator has no row,
/// returns a row with the default values.
const OperatorRow& operator_row(const std::string& target);

/// Returns the schema of an operator from LibTorch or, if LibTorch lacks the operator,
/// from OperatorRow::schema. Returns null if neither exists.
const c10::FunctionSchema* schema_of(
    const std::string& target, const std::string& overload);

/// Returns the schema of a node's operator, which must exist.
const c10::FunctionSchema& schema_of(const Node& node);

/// Returns the element type if `type` is an optional type, otherwise `type`.
c10::TypePtr without_optional(const c10::TypePtr& type);

/// Returns the number of multiplications of a node for one sample.
double multiplications_of(const Graph& graph, const Node& node);

/// Returns the estimated time of a node for one sample, in units of one multiplication.
/// It is the number of multiplications plus 10 for each tensor element that the node
/// writes.
double cost_of(const Graph& graph, const Node& node);

}  // namespace tandem
