#pragma once

#include <ATen/core/function_schema.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// Names that the arguments of a node refer to.
struct Pt2Names {
  std::function<ValueId(const std::string& name)> value;
  std::function<Size(const std::string& name)> size;
  // Throws ConfigError: the name of the node, then `what`.
  std::function<void(const std::string& what)> refuse;
};

/// Returns the arguments of a call of `schema`: those of a node in a file of
/// torch.export.save (a list of NamedArgument), and the schema's defaults.
///
/// Throws ConfigError for arguments that the schema lacks, and for graphs, custom
/// objects and unknown kinds of arguments. Throws nlohmann::json::exception if the list
/// is damaged.
std::vector<Argument> arguments_of(
    const nlohmann::json& inputs, const c10::FunctionSchema& schema,
    const Pt2Names& names);

/// Returns whether an argument is a number for which `schema` requires a tensor. Python
/// accepts numbers there.
bool has_number_for_tensor(
    const nlohmann::json& inputs, const c10::FunctionSchema& schema);

}  // namespace tandem
