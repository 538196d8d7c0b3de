// Arguments and outputs of a call that is exported to ONNX.

#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include "tandem/graph/onnx_operators.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

const c10::IValue& constant_of(const OnnxCall& call, size_t argument) {
  const Argument& found = call.node.arguments[argument];
  if (found.kind != Argument::Kind::constant) {
    throw OnnxObstacle{"with sizes that depend on the batch"};
  }
  return found.constant;
}

int64_t fixed(const Size& size) {
  if (size.per_sample != 0) {
    throw OnnxObstacle{"along the samples of the batch"};
  }
  return size.fixed;
}

}  // namespace

bool OnnxCall::has(size_t argument) const {
  return argument < node.arguments.size() && !node.arguments[argument].is_none();
}

std::optional<size_t> OnnxCall::find(const char* argument) const {
  const auto index = schema_of(node).argumentIndexWithName(argument);
  if (!index || !has(static_cast<size_t>(*index))) {
    return std::nullopt;
  }
  return static_cast<size_t>(*index);
}

double OnnxCall::number_or(const char* argument, double other) const {
  const auto index = find(argument);
  return index ? number(*index) : other;
}

bool OnnxCall::flag_or(const char* argument, bool other) const {
  const auto index = find(argument);
  return index ? flag(*index) : other;
}

std::string OnnxCall::tensor(size_t argument) const {
  return has(argument) ? to.name_of(node.arguments[argument].value) : "";
}

OnnxNames OnnxCall::tensors(size_t argument) const {
  OnnxNames names;
  for (const auto& element : node.arguments[argument].list) {
    names.push_back(to.name_of(element.value));
  }
  return names;
}

std::string OnnxCall::operand(size_t argument) const {
  return operand(argument, output().dtype);
}

std::string OnnxCall::operand(size_t argument, at::ScalarType dtype) const {
  const Argument& found = node.arguments[argument];
  switch (found.kind) {
    case Argument::Kind::value:
      return cast(tensor(argument), value(argument).dtype, dtype);
    case Argument::Kind::size:
      return cast(to.reshape(to.sizes({found.size}), {}), at::kLong, dtype);
    default:
      return to.number(number(argument), dtype);
  }
}

std::string OnnxCall::cast(
    const std::string& value, at::ScalarType from, at::ScalarType dtype) const {
  return from == dtype ? value : add("Cast", {value}, {{"to", onnx_dtype(dtype)}});
}

std::string OnnxCall::constant(double value) const {
  return to.number(value, output().dtype);
}

at::ScalarType OnnxCall::common_dtype(size_t first, size_t second) const {
  const auto example = [&](size_t argument) {
    const Argument& found = node.arguments[argument];
    if (found.kind == Argument::Kind::value) {
      return at::empty(
          rank(argument) == 0 ? at::IntArrayRef() : at::IntArrayRef{1},
          value(argument).dtype);
    }
    const auto scalar = found.kind == Argument::Kind::size ? at::Scalar(int64_t{1})
                                                           : found.constant.toScalar();
    auto tensor = at::scalar_tensor(scalar);
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  };
  return at::result_type(example(first), example(second));
}

int64_t OnnxCall::integer(size_t argument) const {
  const Argument& found = node.arguments[argument];
  return found.kind == Argument::Kind::size ? fixed(found.size)
                                            : constant_of(*this, argument).toInt();
}

std::vector<int64_t> OnnxCall::integers(size_t argument) const {
  const Argument& found = node.arguments[argument];
  if (found.kind != Argument::Kind::list) {
    const c10::IValue& value = constant_of(*this, argument);
    return value.isInt() ? std::vector<int64_t>{value.toInt()} : value.toIntVector();
  }
  std::vector<int64_t> values;
  for (const auto& element : found.list) {
    values.push_back(
        element.kind == Argument::Kind::size ? fixed(element.size)
                                             : element.constant.toInt());
  }
  return values;
}

std::vector<Size> OnnxCall::sizes(size_t argument) const {
  const Argument& found = node.arguments[argument];
  std::vector<Size> sizes;
  if (found.kind != Argument::Kind::list) {
    return fixed_shape(integers(argument));
  }
  for (const auto& element : found.list) {
    sizes.push_back(
        element.kind == Argument::Kind::size ? element.size
                                             : Size{element.constant.toInt(), 0});
  }
  return sizes;
}

double OnnxCall::number(size_t argument) const {
  return constant_of(*this, argument).toScalar().toDouble();
}

bool OnnxCall::flag(size_t argument) const {
  return constant_of(*this, argument).toBool();
}

std::string OnnxCall::text(size_t argument) const {
  return constant_of(*this, argument).toStringRef();
}

const Value& OnnxCall::value(size_t argument) const {
  return graph.value(node.arguments[argument].value);
}

const std::vector<Size>& OnnxCall::shape(size_t argument) const {
  return value(argument).shape;
}

int64_t OnnxCall::rank(size_t argument) const {
  return static_cast<int64_t>(shape(argument).size());
}

const Value& OnnxCall::output() const {
  for (const ValueId id : node.outputs) {
    if (id >= 0) {
      return graph.value(id);
    }
  }
  throw OnnxObstacle{"without a used output"};
}

bool OnnxCall::uses(size_t output) const {
  return output < node.outputs.size() && node.outputs[output] >= 0;
}

int64_t OnnxCall::dimension(int64_t dimension) const {
  return dimension < 0 ? dimension + rank(0) : dimension;
}

int64_t OnnxCall::fixed_size(size_t argument, int64_t dimension) const {
  return fixed(shape(argument).at(static_cast<size_t>(dimension)));
}

std::string OnnxCall::over_channels(const std::string& value) const {
  std::vector<int64_t> shape(this->shape(0).size() - 1, 1);
  shape[0] = -1;
  return add("Reshape", {value, to.integers(shape)});
}

std::string OnnxCall::slice(
    const std::string& value, int64_t dimension, int64_t begin, int64_t end,
    int64_t step) const {
  return add(
      "Slice", {value, to.integers({begin}), to.integers({end}),
                to.integers({dimension}), to.integers({step})});
}

}  // namespace tandem
