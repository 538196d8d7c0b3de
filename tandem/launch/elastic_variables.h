#pragma once

#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/logs/torchrun_options.h"

namespace tandem {

/// Returns the environment variables that torchrun sets for a rank in addition to
/// to_variables() and Restarts::variables(). They override variables of the same name,
/// also those of an outer torchrun. Throws ConfigError if a rank needs a separate GPU,
/// but CUDA_VISIBLE_DEVICES lists no GPU for it.
Variables elastic_variables(
    const TorchrunOptions& options, const RankEnv& env, const GetEnv& get = get_env);

}  // namespace tandem
