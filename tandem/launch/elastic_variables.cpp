#include "tandem/launch/elastic_variables.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Returns the GPU of a rank, as a value for CUDA_VISIBLE_DEVICES.
std::string own_gpu(int local_rank, const GetEnv& get) {
  const auto listed = get("CUDA_VISIBLE_DEVICES");
  if (!listed) {
    return std::to_string(local_rank);
  }
  const auto gpus = split(*listed, ',');
  if (gpus.size() <= static_cast<size_t>(local_rank)) {
    throw ConfigError(fmt::format(
        "[launch] CUDA_VISIBLE_DEVICES is '{}', expected a GPU for local rank {}, "
        "which "
        "--virtual-local-rank needs; lower --nproc-per-node, or list more GPUs",
        *listed, local_rank));
  }
  return gpus[static_cast<size_t>(local_rank)];
}

}  // namespace

Variables elastic_variables(
    const TorchrunOptions& options, const RankEnv& env, const GetEnv& get) {
  Variables variables = {
      {"GROUP_WORLD_SIZE", std::to_string(env.world_size / env.local_world_size)},
      {"ROLE_NAME", options.role},
      {"ROLE_RANK", std::to_string(env.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(env.world_size)},
      {"TORCHELASTIC_RUN_ID", env.run.empty() ? "none" : env.run},
      // No agent serves LibTorch's store at MASTER_PORT, so rank 0 has to.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
  if (options.virtual_local_rank) {
    variables.emplace_back("LOCAL_RANK", "0");
    variables.emplace_back("CUDA_VISIBLE_DEVICES", own_gpu(env.local_rank, get));
  }
  return variables;
}

}  // namespace tandem
