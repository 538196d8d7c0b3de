#include "tandem/model/module_tree.h"

#include <fmt/core.h>

#include <map>
#include <stdexcept>

#include "tandem/base/error.h"
#include "tandem/graph/effects.h"
#include "tandem/model/layer_kinds.h"

namespace tandem {

namespace {

// A module of a network. Its options are those of the first layer of its kind that
// belongs to no earlier module.
struct Module {
  const char* name;
  LayerKind kind;
};

struct Network {
  ModelKind kind;
  const char* class_name;
  std::vector<Module> modules;
};

const std::vector<Network>& networks() {
  static const std::vector<Network> all = {
      {ModelKind::net,
       "Net",
       {{"conv1", LayerKind::conv2d},
        {"conv2", LayerKind::conv2d},
        {"dropout1", LayerKind::dropout},
        {"dropout2", LayerKind::dropout},
        {"fc1", LayerKind::linear},
        {"fc2", LayerKind::linear}}},
      {ModelKind::convnet,
       "ConvNet",
       {{"cn1", LayerKind::conv2d},
        {"cn2", LayerKind::conv2d},
        {"dp1", LayerKind::dropout2d},
        {"dp2", LayerKind::dropout2d},
        {"fc1", LayerKind::linear},
        {"fc2", LayerKind::linear}}},
      {ModelKind::net5x5,
       "Net",
       {{"dropout", LayerKind::dropout2d},
        {"conv1", LayerKind::conv2d},
        {"conv2", LayerKind::conv2d},
        {"relu", LayerKind::relu},
        {"fc1", LayerKind::linear},
        {"fc2", LayerKind::linear}}},
      {ModelKind::simplenet, "SimpleNet", {{"fc", LayerKind::linear}}},
      {ModelKind::lenet3x3,
       "MyModel",
       {{"conv1", LayerKind::conv2d},
        {"conv2", LayerKind::conv2d},
        {"fc1", LayerKind::linear},
        {"fc2", LayerKind::linear}}},
      {ModelKind::convnet_bn,
       "ConvNet",
       {{"layer1.0", LayerKind::conv2d},
        {"layer1.1", LayerKind::batch_norm2d},
        {"layer1.2", LayerKind::relu},
        {"layer1.3", LayerKind::max_pool2d},
        {"layer2.0", LayerKind::conv2d},
        {"layer2.1", LayerKind::batch_norm2d},
        {"layer2.2", LayerKind::relu},
        {"layer2.3", LayerKind::max_pool2d},
        {"fc", LayerKind::linear}}},
  };
  return all;
}

const Network& network_of(ModelKind kind) {
  for (const auto& network : networks()) {
    if (network.kind == kind) {
      return network;
    }
  }
  throw ConfigError(
      std::string("[model] model is ") + name_of(kind) +
      ", expected a model with a module tree; choose another model");
}

const Layer& nth_of_kind(const std::vector<Layer>& layers, LayerKind kind, int64_t n) {
  for (const auto& layer : layers) {
    if (layer.kind == kind && n-- == 0) {
      return layer;
    }
  }
  throw std::logic_error("a module without a layer");
}

}  // namespace

std::string module_tree(ModelKind kind, const std::vector<Layer>& layers) {
  const Network& network = network_of(kind);
  std::map<LayerKind, int64_t> seen;
  std::string text = std::string(network.class_name) + "(\n";
  std::string open;
  for (const auto& module : network.modules) {
    const std::string name = module.name;
    const size_t dot = name.find('.');
    const std::string group = dot == std::string::npos ? "" : name.substr(0, dot);
    if (group != open) {
      text += open.empty() ? "" : "  )\n";
      text += group.empty() ? "" : "  (" + group + "): Sequential(\n";
      open = group;
    }
    const Layer& layer = nth_of_kind(layers, module.kind, seen[module.kind]++);
    text += fmt::format(
        "{}({}): {}\n", group.empty() ? "  " : "    ",
        group.empty() ? name : name.substr(dot + 1), row_of(layer).repr(layer));
  }
  return text + (open.empty() ? "" : "  )\n") + ")\n";
}

std::vector<LayerSummary> summarise(const Graph& graph) {
  std::vector<LayerSummary> rows;
  const Effects effects(graph);
  for (const auto& node : graph.nodes) {
    if (effects.changes_state(node)) {
      continue;
    }
    LayerSummary row;
    row.name = node.module.empty() ? node.target.substr(node.target.rfind(':') + 1)
                                   : node.module;
    if (node.outputs[0] >= 0) {
      row.output = graph.value(node.outputs[0]).shape;
    }
    row.flops = 2 * multiplications_of(graph, node);
    row.node = static_cast<size_t>(&node - graph.nodes.data());
    row.num_parameters = count_parameters(graph, node);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tandem
