#pragma once

#include "tandem/config/options/exec_options.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/model/model.h"

namespace tandem {

/// Throws ConfigError if `recompute` of the options has a pattern that matches no layer
/// of the whole model, or if the model has no graph, which recompute needs.
void check_recompute(const ExecOptions& options, const Model& model);

/// Makes backward compute the values again that the options select, for a model that
/// check_recompute() accepts and that may have been reduced to a stage. `samples` is
/// the size of a micro-batch. Sets StageOptions::recomputes. Returns a description for
/// the log; "" if no values are recomputed.
///
/// Throws ConfigError if the values do not fit into the memory of the options.
[[nodiscard]] std::string recompute_values(
    const ExecOptions& options, int64_t samples, Model& model, StageOptions& stage);

}  // namespace tandem
