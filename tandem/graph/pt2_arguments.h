#pragma once

#include <ATen/core/function_schema.h>

#include <functional>
#include <nlohmann/json.hpp>
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

/// Returns whether an argument is a number although `schema` requires a tensor. Python
/// accepts numbers in place of tensors.
bool has_number_for_tensor(
    const nlohmann::json& inputs, const c10::FunctionSchema& schema);

}  // namespace tandem
