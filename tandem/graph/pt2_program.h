#pragma once

#include <string>

#include "tandem/graph/graph.h"
#include "tandem/graph/pt2_values.h"

namespace tandem {

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

}  // namespace tandem
