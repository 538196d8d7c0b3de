#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// Which rank this process is, as its launcher says.
struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  // Host and port at which rank 0 can be reached. Unused when `store` is given.
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  // Address of a rendezvous store that the launcher runs (store/store.h), or "".
  std::string store;
  // Which launcher's variables were found: "env", "slurm", "openmpi", "pmi".
  std::string source;
  // Name of this run among those of its launcher, "" when the launcher gives none.
  // Ranks that name different runs reject each other (store/greeting.h).
  std::string run;
  // torchrun's agent listens on master_port itself.
  bool agent_store = false;
};

/// Looks up a variable; nullopt when it is not set.
using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

/// The process's own environment.
std::optional<std::string> get_env(const std::string& name);

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
/// MASTER_PORT (torchrun, Kubeflow), else the names of SLURM (inside srun),
/// Open MPI and PMI. Without LOCAL_WORLD_SIZE a loopback MASTER_ADDR, or SLURM's
/// number of nodes, says that all ranks are on this host. Returns nullopt when no
/// launcher started this process.
///
/// Without MASTER_PORT a SLURM step has a port from 15000 to 31383, which follows from
/// the numbers of the job and the step.
///
/// Throws ConfigError that names the variable when one is missing although others are
/// set, is not a number, or is out of range.
[[nodiscard]] std::optional<RankEnv> read_rank_env(const GetEnv& get = get_env);

/// The variables that a launcher sets for one rank, as (name, value): the inverse of
/// read_rank_env.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> to_variables(
    const RankEnv& env);

/// Whether ranks that meet at this address are all on this host: 127.0.0.1 and its
/// like.
bool is_loopback(const std::string& host);

/// Whether the launcher's variables say that all ranks are on this host.
bool is_one_host(const RankEnv& env);

/// Number of CPUs this process may use: affinity, then the cgroup's quota.
int usable_cpus();

}  // namespace tandem
