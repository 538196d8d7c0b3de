#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

// Operators that a network file may call. LibTorch's kernels trust some arguments, such
// as indices of a backward operator, so a file could otherwise change any memory. A new
// operator needs a run of the fuzzer pt2_run (tests/fuzz).

/// Returns why a network file must not make this call, as the end of a message; nullopt
/// if it may. Reasons are an operator that is not in the list of checked operators, and
/// numbers that LibTorch does not check.
std::optional<std::string> find_unsafe(
    const Node& node, const c10::FunctionSchema& schema);

/// Throws ConfigError for the first call that find_unsafe() refuses.
void check_operators(const Graph& graph);

/// Checks the values of a call's arguments. Throws c10::Error.
using ArgumentCheck = void (*)(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);

/// Returns the check of the values that LibTorch's kernel of `target` trusts; null if
/// the kernel checks all values.
ArgumentCheck argument_check(const std::string& target);

}  // namespace tandem
