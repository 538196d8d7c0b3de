#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// An attribute of an ONNX operator.
struct OnnxAttribute {
  std::string name;
  std::variant<
      int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>
      value;
};

/// A call of an operator of ONNX's default domain.
struct OnnxNode {
  // Name of the node, unique in the model.
  std::string name;
  // Operator, such as "Conv".
  std::string type;
  // Names of the input values; "" for an optional input that is missing.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<OnnxAttribute> attributes;
};

/// Name, type and shape of the model's input or output.
struct OnnxValue {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  // Each dimension is a number or the name of an unknown number, such as "N".
  std::vector<std::variant<int64_t, std::string>> shape;
};

/// A network in ONNX's form: operators in order of execution. The name of a value
/// belongs to the input, to an initializer or to one output of one node.
struct OnnxModel {
  OnnxValue input;
  OnnxValue output;
  std::vector<OnnxNode> nodes;
  // Weights and constants, with any strides and the dtypes of onnx_dtype().
  std::vector<NamedTensor> initializers;
  // Facts about the model, as names and texts.
  std::map<std::string, std::string> metadata = {};
};

/// Versions of the operators and of the file format (ONNX 1.12).
constexpr int64_t kOnnxOpset = 17;
constexpr int64_t kOnnxIrVersion = 8;

/// Returns ONNX's number of a dtype; 0 if ONNX has no such dtype.
[[nodiscard]] int64_t onnx_dtype(at::ScalarType dtype);

/// Returns the bytes of an ONNX file, which is a message of Protocol Buffers
/// (onnx/onnx.proto, https://onnx.ai).
///
/// Throws ConfigError if the file would be longer than 2 GiB, which is the limit of
/// Protocol Buffers.
[[nodiscard]] std::string onnx_bytes(const OnnxModel& model);

}  // namespace tandem
