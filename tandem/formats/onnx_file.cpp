#include "tandem/formats/onnx_file.h"

#include <limits>

#include "tandem/base/error.h"
#include "tandem/formats/dtypes.h"
#include "tandem/formats/protobuf.h"

namespace tandem {

namespace {

// AttributeProto: field of the value, and AttributeType.
void add_value(ProtobufMessage& message, int64_t value) {
  message.add_integer(3, value);
  message.add_integer(20, 2);
}
void add_value(ProtobufMessage& message, double value) {
  message.add_number(2, static_cast<float>(value));
  message.add_integer(20, 1);
}
void add_value(ProtobufMessage& message, const std::string& value) {
  message.add(4, value);
  message.add_integer(20, 3);
}
void add_value(ProtobufMessage& message, const std::vector<int64_t>& values) {
  for (const int64_t value : values) {
    message.add_integer(8, value);
  }
  message.add_integer(20, 7);
}
void add_value(ProtobufMessage& message, const std::vector<std::string>& values) {
  for (const auto& value : values) {
    message.add(9, value);
  }
  message.add_integer(20, 8);
}

// NodeProto
ProtobufMessage message_of(const OnnxNode& node) {
  ProtobufMessage message;
  for (const auto& input : node.inputs) {
    message.add(1, input);
  }
  for (const auto& output : node.outputs) {
    message.add(2, output);
  }
  message.add(3, node.name);
  message.add(4, node.type);
  for (const auto& attribute : node.attributes) {
    ProtobufMessage inner;
    inner.add(1, attribute.name);
    std::visit([&](const auto& value) { add_value(inner, value); }, attribute.value);
    message.add(5, inner);
  }
  return message;
}

// TensorProto. Its raw data is little-endian, as are the CPUs that tandem supports.
ProtobufMessage message_of(const NamedTensor& named) {
  const auto tensor = named.tensor.detach().cpu().contiguous();
  TANDEM_CHECK(onnx_dtype(tensor.scalar_type()) != 0, "ONNX has no such dtype");
  ProtobufMessage message;
  for (const int64_t size : tensor.sizes()) {
    message.add_integer(1, size);
  }
  message.add_integer(2, onnx_dtype(tensor.scalar_type()));
  message.add(8, named.name);
  message.add(9, tensor.data_ptr(), tensor.nbytes());
  return message;
}

// ValueInfoProto, which contains TypeProto, TypeProto.Tensor, TensorShapeProto and
// TensorShapeProto.Dimension.
ProtobufMessage message_of(const OnnxValue& value) {
  ProtobufMessage shape;
  for (const auto& size : value.shape) {
    ProtobufMessage dimension;
    if (const auto* number = std::get_if<int64_t>(&size)) {
      dimension.add_integer(1, *number);
    } else {
      dimension.add(2, std::get<std::string>(size));
    }
    shape.add(1, dimension);
  }
  ProtobufMessage tensor;
  tensor.add_integer(1, onnx_dtype(value.dtype));
  tensor.add(2, shape);
  ProtobufMessage type;
  type.add(1, tensor);
  ProtobufMessage message;
  message.add(1, value.name);
  message.add(2, type);
  return message;
}

void check_size(size_t bytes) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  if (bytes > kMost) {
    throw ConfigError(
        "[export] the network has " + std::to_string(bytes) +
        " bytes, expected at most " + std::to_string(kMost) +
        " in an ONNX file; use another format");
  }
}

}  // namespace

int64_t onnx_dtype(at::ScalarType dtype) {
  const FileDtype* row = find_dtype(dtype);
  return row == nullptr ? 0 : row->onnx;
}

std::string onnx_bytes(const OnnxModel& model) {
  size_t weights = 0;
  for (const auto& [name, tensor] : model.initializers) {
    weights += tensor.nbytes();
  }
  check_size(weights);
  // GraphProto
  ProtobufMessage graph;
  for (const auto& node : model.nodes) {
    graph.add(1, message_of(node));
  }
  graph.add(2, "network");
  for (const auto& tensor : model.initializers) {
    graph.add(5, message_of(tensor));
  }
  graph.add(11, message_of(model.input));
  graph.add(12, message_of(model.output));
  // OperatorSetIdProto; the domain "" is the default.
  ProtobufMessage opset;
  opset.add_integer(2, kOnnxOpset);
  // ModelProto
  ProtobufMessage file;
  file.add_integer(1, kOnnxIrVersion);
  file.add(2, "tandem");
  file.add(7, graph);
  file.add(8, opset);
  // StringStringEntryProto
  for (const auto& [key, value] : model.metadata) {
    ProtobufMessage entry;
    entry.add(1, key);
    entry.add(2, value);
    file.add(14, entry);
  }
  check_size(file.bytes().size());
  return file.take();
}

}  // namespace tandem
