#include "tandem/graph/onnx_builder.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

namespace tandem {

namespace {

OnnxValue onnx_value(const std::string& name, const Value& value) {
  OnnxValue result = {name, value.dtype, {}};
  for (const auto& size : value.shape) {
    if (size.per_sample == 0) {
      result.shape.emplace_back(size.fixed);
    } else {
      result.shape.emplace_back(text_of(size));
    }
  }
  return result;
}

}  // namespace

OnnxBuilder::OnnxBuilder(const Graph& graph, const Effects& effects)
    : graph_(graph),
      effects_(effects),
      names_(graph.values.size()),
      changed_by_(graph.values.size()) {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const auto id = static_cast<ValueId>(i);
    if (value.kind == ValueKind::parameter || value.kind == ValueKind::buffer) {
      state_names_[id] = unique(value.state_name);
    }
  }
  const auto input = static_cast<size_t>(graph.input);
  names_[input] = unique(graph.value(graph.input).name);
  model_.input = onnx_value(names_[input], graph.value(graph.input));
}

void OnnxBuilder::begin(const Node& node) {
  prefix_ = node.name;
  first_ = model_.nodes.size();
}

std::string OnnxBuilder::unique(const std::string& name) {
  std::string result = name;
  for (int i = 1; !taken_.insert(result).second; ++i) {
    result = name + "_" + std::to_string(i);
  }
  return result;
}

void OnnxBuilder::add_tensor(const std::string& name, const at::Tensor& tensor) {
  if (onnx_dtype(tensor.scalar_type()) == 0) {
    throw OnnxObstacle{
        std::string("with a tensor of ") + c10::toString(tensor.scalar_type())};
  }
  model_.initializers.push_back({name, tensor});
}

std::string OnnxBuilder::name_of(ValueId id) {
  const auto i = static_cast<size_t>(id);
  if (changed_by_[i] != nullptr) {
    throw OnnxObstacle{
        "after " + changed_by_[i]->name + " changes the memory of its input in place"};
  }
  const Value& value = graph_.value(id);
  if (names_[i].empty() && value.tensor.defined()) {
    const auto state = state_names_.find(id);
    const std::string name =
        state == state_names_.end() ? unique(value.name) : state->second;
    add_tensor(name, value.tensor);
    names_[i] = name;
  }
  return names_[i];
}

std::string OnnxBuilder::add(
    const std::string& type, OnnxNames inputs, std::vector<OnnxAttribute> attributes) {
  return add_several(type, std::move(inputs), 1, std::move(attributes))[0];
}

OnnxNames OnnxBuilder::add_several(
    const std::string& type, OnnxNames inputs, size_t count,
    std::vector<OnnxAttribute> attributes) {
  while (!inputs.empty() && inputs.back().empty()) {
    inputs.pop_back();
  }
  OnnxNames outputs;
  for (size_t i = 0; i < count; ++i) {
    outputs.push_back(unique(prefix_ + "/" + type));
  }
  model_.nodes.push_back(
      {outputs[0], type, std::move(inputs), outputs, std::move(attributes)});
  return outputs;
}

std::string OnnxBuilder::constant(const at::Tensor& tensor) {
  const std::string name = unique(prefix_ + "/constant");
  add_tensor(name, tensor);
  return name;
}

std::string OnnxBuilder::integers(const std::vector<int64_t>& values) {
  return constant(at::tensor(values, at::kLong));
}

std::string OnnxBuilder::number(double value, at::ScalarType dtype) {
  return constant(at::full({}, value, dtype));
}

// Returns the number of samples, as a list of one size.
std::string OnnxBuilder::samples() {
  if (samples_.empty()) {
    const auto& shape = graph_.value(graph_.input).shape;
    const auto batch = std::find(shape.begin(), shape.end(), Size{0, 1});
    if (batch == shape.end()) {
      throw OnnxObstacle{"because no dimension of the input is the number of samples"};
    }
    const int64_t dimension = batch - shape.begin();
    samples_ = add(
        "Shape", {model_.input.name}, {{"start", dimension}, {"end", dimension + 1}});
  }
  return samples_;
}

std::string OnnxBuilder::sizes(const std::vector<Size>& sizes) {
  OnnxNames parts;
  std::vector<int64_t> fixed;
  const auto add_fixed = [&] {
    if (!fixed.empty()) {
      parts.push_back(integers(fixed));
      fixed.clear();
    }
  };
  for (const auto& size : sizes) {
    if (size.per_sample == 0) {
      fixed.push_back(size.fixed);
      continue;
    }
    add_fixed();
    std::string part = samples();
    if (size.per_sample != 1) {
      part = add("Mul", {part, integers({size.per_sample})});
    }
    if (size.fixed != 0) {
      part = add("Add", {part, integers({size.fixed})});
    }
    parts.push_back(part);
  }
  if (parts.empty() || !fixed.empty()) {
    parts.push_back(integers(fixed));
  }
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", int64_t{0}}});
}

std::string OnnxBuilder::reshape(
    const std::string& value, const std::vector<Size>& shape) {
  // The size -1 in ONNX means that the size is inferred from the other sizes.
  std::vector<int64_t> constant;
  for (const auto& size : shape) {
    constant.push_back(size.per_sample == 0 ? size.fixed : -1);
  }
  const bool inferred = std::count(constant.begin(), constant.end(), -1) <= 1;
  return add("Reshape", {value, inferred ? integers(constant) : sizes(shape)});
}

// Gives an output of the current node the name of the graph's value. If the output is
// another value, such as the input of dropout, it keeps its name.
std::string OnnxBuilder::renamed(
    const Node& node, size_t index, const std::string& value) {
  for (size_t i = first_; i < model_.nodes.size(); ++i) {
    OnnxNode& made = model_.nodes[i];
    const auto output = std::find(made.outputs.begin(), made.outputs.end(), value);
    if (output != made.outputs.end() && value != samples_) {
      const std::string name = unique(graph_.value(node.outputs[index]).name);
      *output = name;
      if (node.outputs.size() == 1) {
        made.name = node.name;
      }
      for (size_t reader = i + 1; reader < model_.nodes.size(); ++reader) {
        auto& inputs = model_.nodes[reader].inputs;
        std::replace(inputs.begin(), inputs.end(), value, name);
      }
      return name;
    }
  }
  return value;
}

// `node` has changed `written` in place. All names of the same tensor now refer to the
// new value; ONNX cannot express its other views.
void OnnxBuilder::overwrite(const Node& node, ValueId written) {
  const std::string before = names_[static_cast<size_t>(written)];
  const std::string after = names_[static_cast<size_t>(node.outputs[0])];
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (names_[i].empty() || effects_.root(id) != effects_.root(written)) {
      continue;
    }
    if (names_[i] == before) {
      names_[i] = after;
    } else if (names_[i] != after) {
      changed_by_[i] = &node;
    }
  }
}

void OnnxBuilder::end(const Node& node, const OnnxNames& outputs) {
  const ValueId written = written_value(node);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (id < 0 || i >= outputs.size()) {
      continue;
    }
    names_[static_cast<size_t>(id)] = renamed(node, i, outputs[i]);
  }
  if (written >= 0 && !node.outputs.empty() && node.outputs[0] >= 0) {
    overwrite(node, written);
  }
}

void OnnxBuilder::end_without_counterpart(const Node& node) {
  for (const ValueId id : node.outputs) {
    if (id >= 0) {
      names_[static_cast<size_t>(id)] = unique(graph_.value(id).name);
    }
  }
}

OnnxModel OnnxBuilder::take() {
  std::string output = name_of(graph_.output);
  const bool computed =
      std::any_of(model_.nodes.begin(), model_.nodes.end(), [&](const OnnxNode& node) {
        return std::count(node.outputs.begin(), node.outputs.end(), output) > 0;
      });
  // ONNX requires that a node computes the output.
  if (!computed) {
    prefix_ = "output";
    output = add("Identity", {output});
  }
  model_.output = onnx_value(output, graph_.value(graph_.output));
  return std::move(model_);
}

}  // namespace tandem
