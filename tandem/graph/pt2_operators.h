#pragma once

#include <ATen/core/function_schema.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tandem/graph/graph.h"
#include "tandem/graph/pt2_arguments.h"

namespace tandem {

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
/// example, the operator draws random numbers or uses files, or the arguments fix
/// evaluation mode. Returns nullopt for other calls.
std::optional<std::string> find_problem(
    const Node& node, const c10::FunctionSchema& schema);

}  // namespace tandem
