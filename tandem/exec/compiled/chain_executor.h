#pragma once

#include <memory>
#include <string>

#include "tandem/exec/stage_executor.h"

namespace tandem {

/// Returns an executor that compiles a chain of layers into oneDNN primitives and
/// custom kernels. It fuses ReLUs, plans memory and layouts once for each batch size,
/// and does not use autograd. Results have equal bits for any number of threads.
/// Products in training are bfloat16 if `options.numerics` requires this and has_bf16()
/// (kernels/isa.h) is true.
///
/// Call it only if compiled_obstacle() and chain_obstacle() return "".
[[nodiscard]] std::unique_ptr<StageExecutor> make_chain_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Returns the reason why a graph is no chain of layers that have kernels; "" if it is
/// one.
[[nodiscard]] std::string chain_obstacle(
    const Graph& graph, const StageOptions& options);

}  // namespace tandem
