#pragma once

#include <ATen/core/function_schema.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// Functions that resolve the names in the arguments of a node, or report an error.
struct Pt2Names {
  std::function<ValueId(const std::string& name)> value;
  std::function<Size(const std::string& name)> size;
  // Throws ConfigError. The message is the name of the node, followed by `what`.
  std::function<void(const std::string& what)> refuse;
};

/// Converts the arguments of a node to those of `schema`, including defaults. `inputs`
/// is the list of NamedArgument in a file of torch.export.save.
///
/// Throws ConfigError for an argument that the schema lacks or that has an unsupported
/// kind, such as a graph or a custom object. Throws nlohmann::json::exception if the
/// list is damaged.
std::vector<Argument> arguments_of(
    const nlohmann::json& inputs, const c10::FunctionSchema& schema,
    const Pt2Names& names);

/// Sets the node's operator and overload from a target in a file of torch.export.save:
/// "torch.ops.aten.add.Tensor" is "aten::add" and "Tensor". Selects the overload for
/// numbers if `inputs` (a list of NamedArgument) has a number in place of a tensor.
/// Returns the operator's schema.
///
/// Calls names.refuse if the target is not an operator or if LibTorch lacks the
/// operator.
const c10::FunctionSchema& find_operator(
    Node& node, const std::string& target, const nlohmann::json& inputs,
    const Pt2Names& names);

/// Returns the reason why tandem cannot train a network with this call of `schema`. For
/// example, the operator uses files or depends on strides. Returns nullopt for other
/// calls.
std::optional<std::string> find_problem(
    const Node& node, const c10::FunctionSchema& schema);

/// Checks the modes of batch norm and dropout. If batch norm is in evaluation mode and
/// no node is in training mode, returns the name of the first batch norm, which is
/// frozen. Otherwise returns "".
///
/// Calls names.refuse if dropout, too, is in evaluation mode. The file was then
/// exported from a model in evaluation mode.
std::string find_frozen(const Graph& graph, const Pt2Names& names);

/// Returns the path of the module that made a node, such as "layer1.0.conv1", or "" if
/// the module is the whole model or unknown. `metadata` is the metadata of the node in
/// a file of torch.export.save.
std::string module_of(const nlohmann::json& metadata);

/// Returns the line of Python that made a node, such as "net.py:12: x = self.fc1(x)":
/// the innermost call outside of PyTorch. Returns "" if the line is unknown.
std::string source_of(const nlohmann::json& metadata);

}  // namespace tandem
