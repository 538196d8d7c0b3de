#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/graph/onnx_builder.h"

namespace tandem {

struct OnnxRow;

/// A call of an operator, and the builder to which its ONNX nodes are added.
struct OnnxCall {
  const Graph& graph;
  const Node& node;
  const OnnxRow& row;
  OnnxBuilder& to;

  /// Returns whether an argument is not None.
  bool has(size_t argument) const;
  /// Returns the ONNX name of a tensor; "" for None.
  std::string tensor(size_t argument) const;
  /// Returns the ONNX name of a tensor or number, in the dtype of the output.
  std::string operand(size_t argument) const;
  /// Returns the ONNX name of a value of dtype `from`, converted to the dtype of the
  /// output.
  std::string as_output(const std::string& value, at::ScalarType from) const;
  /// Functions that return an argument. They throw OnnxObstacle if the argument depends
  /// on the number of samples.
  int64_t integer(size_t argument) const;
  std::vector<int64_t> integers(size_t argument) const;
  double number(size_t argument) const;
  bool flag(size_t argument) const;
  std::string text(size_t argument) const;

  const Value& value(size_t argument) const;
  const std::vector<Size>& shape(size_t argument) const;
  int64_t rank(size_t argument) const;
  /// Returns the first output.
  const Value& output() const;
  /// Returns a dimension of the first argument as a number from 0 on. Negative
  /// dimensions count from the last dimension.
  int64_t dimension(int64_t dimension) const;
  /// Returns a size of an argument. Throws OnnxObstacle if the size depends on the
  /// number of samples.
  int64_t fixed_size(size_t argument, int64_t dimension) const;
};

/// The counterpart of an operator of ATen in ONNX.
struct OnnxRow {
  // Name without overload and without the "_" of operators in place.
  const char* name;
  // Adds the nodes and returns their results, one for each output of the call.
  OnnxNames (*add)(const OnnxCall& call);
  // Type of the ONNX operator to add, if several rows have the same function `add`.
  const char* type = "";
};

/// Returns the counterpart of an operator, such as "aten::relu" or "aten::relu_"; null
/// if there is none.
const OnnxRow* onnx_row(const std::string& target);

// --- onnx_layers.cpp: layers with parameters, pooling, attention

OnnxNames onnx_convolution(const OnnxCall& call);
OnnxNames onnx_transposed_convolution(const OnnxCall& call);
OnnxNames onnx_linear(const OnnxCall& call);
OnnxNames onnx_addmm(const OnnxCall& call);
OnnxNames onnx_batch_norm(const OnnxCall& call);
OnnxNames onnx_layer_norm(const OnnxCall& call);
OnnxNames onnx_group_norm(const OnnxCall& call);
OnnxNames onnx_prelu(const OnnxCall& call);
OnnxNames onnx_max_pool(const OnnxCall& call);
OnnxNames onnx_average_pool(const OnnxCall& call);
OnnxNames onnx_adaptive_pool(const OnnxCall& call);
OnnxNames onnx_attention(const OnnxCall& call);

// --- onnx_views.cpp: operators that move values

OnnxNames onnx_reshape(const OnnxCall& call);
OnnxNames onnx_permute(const OnnxCall& call);
OnnxNames onnx_transpose(const OnnxCall& call);
OnnxNames onnx_expand(const OnnxCall& call);
OnnxNames onnx_cat(const OnnxCall& call);
OnnxNames onnx_stack(const OnnxCall& call);
OnnxNames onnx_select(const OnnxCall& call);
OnnxNames onnx_slice(const OnnxCall& call);
OnnxNames onnx_narrow(const OnnxCall& call);
OnnxNames onnx_chunk(const OnnxCall& call);
OnnxNames onnx_split(const OnnxCall& call);
OnnxNames onnx_unbind(const OnnxCall& call);
OnnxNames onnx_embedding(const OnnxCall& call);
OnnxNames onnx_pad(const OnnxCall& call);

}  // namespace tandem
