#pragma once

#include <ATen/core/function_schema.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// JSON of a file of torch.export.save. Objects keep the order of their entries.
using Pt2Json = nlohmann::ordered_json;

/// Symbol of the number of samples.
constexpr const char* kPt2Symbol = "s0";

/// Returns a graph as a program of torch.export. Keeps those names of the graph that
/// are valid names in Python. Keyword arguments and trailing positional arguments with
/// default values are omitted. Operators keep the mode of their arguments, which is
/// training in all graphs that tandem trains.
///
/// Sizes of tensors are those of the graph; strides are those of contiguous tensors. A
/// node of the program computes each size that an argument of an operator needs.
///
/// Throws ConfigError if an argument or a dtype has no counterpart in torch.export.
///
/// Source: ExportedProgram in torch/_export/serde/schema.py, version 8.20.
[[nodiscard]] Pt2Json program_of(const Graph& graph);

/// Returns the name of a parameter, buffer or constant in Python's module.
[[nodiscard]] const std::string& attribute_name(const Value& value);

// --- pt2_values.cpp

// The following functions return the JSON of a struct in torch/_export/serde/schema.py.
// They throw ConfigError if torch.export has no counterpart. `owner` is the owner of
// the value in messages.

/// Returns a size, as a SymInt.
[[nodiscard]] Pt2Json pt2_size(const Size& size);

/// Returns the description of a contiguous tensor, as a TensorMeta.
[[nodiscard]] Pt2Json pt2_tensor(
    at::ScalarType dtype, const std::vector<Size>& shape, bool requires_grad,
    const std::string& owner);

/// Returns a constant argument of an operator, as an Argument. `wanted` is this
/// argument in the operator's schema.
[[nodiscard]] Pt2Json pt2_constant(
    const c10::IValue& value, const c10::Argument& wanted, const std::string& owner);

}  // namespace tandem
