#pragma once

#include <memory>

#include "tandem/exec/program/program_pool.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

/// Returns an executor that records the calls of the eager executor once for each size
/// of the batch, and repeats them as a Program.
///
/// With plan_plain_calls(), the results have the bits of the eager executor. If a call
/// cannot be repeated, for instance because the size of its result depends on values,
/// the executor writes one line to the log and continues as the eager executor. A
/// model without a graph() draws random numbers from LibTorch's generator.
[[nodiscard]] std::unique_ptr<StageExecutor> make_program_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options,
    MakePlanner make_planner);

}  // namespace tandem
