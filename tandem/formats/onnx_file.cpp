#include "tandem/formats/onnx_file.h"

#include <cstring>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/formats/dtypes.h"

namespace tandem {

namespace {

// A message of Protocol Buffers: for each field, a key with its number and type, and
// its value (https://protobuf.dev/programming-guides/encoding).
class Message {
 public:
  void integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }

  void text(int field, const std::string& value) {
    raw(field, value.data(), value.size());
  }

  void message(int field, const Message& value) {
    text(field, value.bytes_);
  }

  void raw(int field, const void* data, size_t size) {
    key(field, 2);
    varint(size);
    bytes_.append(static_cast<const char*>(data), size);
  }

  void number(int field, float value) {
    key(field, 5);
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    bytes_.append(bytes, sizeof(value));
  }

  std::string take() {
    return std::move(bytes_);
  }

 private:
  void key(int field, int type) {
    varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
  }

  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>(value | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// AttributeProto: field of the value, and AttributeType.
void add_value(Message& message, int64_t value) {
  message.integer(3, value);
  message.integer(20, 2);
}
void add_value(Message& message, double value) {
  message.number(2, static_cast<float>(value));
  message.integer(20, 1);
}
void add_value(Message& message, const std::string& value) {
  message.text(4, value);
  message.integer(20, 3);
}
void add_value(Message& message, const std::vector<int64_t>& values) {
  for (const int64_t value : values) {
    message.integer(8, value);
  }
  message.integer(20, 7);
}

// NodeProto
Message message_of(const OnnxNode& node) {
  Message message;
  for (const auto& input : node.inputs) {
    message.text(1, input);
  }
  for (const auto& output : node.outputs) {
    message.text(2, output);
  }
  message.text(3, node.name);
  message.text(4, node.type);
  for (const auto& attribute : node.attributes) {
    Message inner;
    inner.text(1, attribute.name);
    std::visit([&](const auto& value) { add_value(inner, value); }, attribute.value);
    message.message(5, inner);
  }
  return message;
}

// TensorProto. Its raw data is little-endian, as are the CPUs that tandem supports.
Message message_of(const NamedTensor& named) {
  const auto tensor = named.tensor.detach().cpu().contiguous();
  TANDEM_CHECK(onnx_dtype(tensor.scalar_type()) != 0, "ONNX has no such dtype");
  Message message;
  for (const int64_t size : tensor.sizes()) {
    message.integer(1, size);
  }
  message.integer(2, onnx_dtype(tensor.scalar_type()));
  message.text(8, named.name);
  message.raw(9, tensor.data_ptr(), tensor.nbytes());
  return message;
}

// ValueInfoProto, which contains TypeProto, TypeProto.Tensor, TensorShapeProto and
// TensorShapeProto.Dimension.
Message message_of(const OnnxValue& value) {
  Message shape;
  for (const auto& size : value.shape) {
    Message dimension;
    if (const auto* number = std::get_if<int64_t>(&size)) {
      dimension.integer(1, *number);
    } else {
      dimension.text(2, std::get<std::string>(size));
    }
    shape.message(1, dimension);
  }
  Message tensor;
  tensor.integer(1, onnx_dtype(value.dtype));
  tensor.message(2, shape);
  Message type;
  type.message(1, tensor);
  Message message;
  message.text(1, value.name);
  message.message(2, type);
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
  Message graph;
  for (const auto& node : model.nodes) {
    graph.message(1, message_of(node));
  }
  graph.text(2, "network");
  for (const auto& tensor : model.initializers) {
    graph.message(5, message_of(tensor));
  }
  graph.message(11, message_of(model.input));
  graph.message(12, message_of(model.output));
  // OperatorSetIdProto; the domain "" is the default.
  Message opset;
  opset.integer(2, kOnnxOpset);
  // ModelProto
  Message file;
  file.integer(1, kOnnxIrVersion);
  file.text(2, "tandem");
  file.message(7, graph);
  file.message(8, opset);
  std::string bytes = file.take();
  check_size(bytes.size());
  return bytes;
}

}  // namespace tandem
