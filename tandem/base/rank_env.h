#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// Rank of this process and further properties of its run, from the launcher's
/// environment variables.
struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  // Host and port at which other ranks reach rank 0. If `store` is set, the ranks find
  // each other through that store instead.
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  // Address of a rendezvous store that the launcher serves (store/store.h), or "".
  std::string store;
  // Launcher whose variables were found: "env", "slurm", "openmpi" or "pmi".
  std::string source;
  // Name that the launcher gave this run, or "". Ranks with different names reject each
  // other (store/greeting.h).
  std::string run;
  // True if torchrun's agent listens on master_port.
  bool agent_store = false;
};

/// Function that returns a variable's value, or nullopt if the variable is not set.
using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

/// Returns the value of a variable in the environment of this process.
std::optional<std::string> get_env(const std::string& name);

/// Returns the rank of this process, or nullopt if no launcher started it.
///
/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// (torchrun, Kubeflow). If RANK is not set, reads the variables of Open MPI, SLURM
/// (inside srun) or PMI. If LOCAL_WORLD_SIZE is not set, a loopback MASTER_ADDR or a
/// SLURM step of one node means that all ranks are on this host. If MASTER_PORT is not
/// set, a SLURM step uses a port from 15000 to 31383, computed from the numbers of the
/// job and the step.
///
/// Throws ConfigError, which names the variable, if a variable is not a number, is out
/// of range, or is missing although others are set.
[[nodiscard]] std::optional<RankEnv> read_rank_env(const GetEnv& get = get_env);

/// Removes the variable by which read_rank_env() recognized the launcher of `env` from
/// the environment of this process.
void forget_launcher(const RankEnv& env);

/// Returns the name of the variable that contains RankEnv::world_size.
[[nodiscard]] std::string size_variable(const RankEnv& env);

/// Returns the variables that tandem's launcher sets for one rank, as (name, value)
/// pairs. read_rank_env() reads them in the rank.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> to_variables(
    const RankEnv& env);

/// Returns whether an address is a loopback address, such as 127.0.0.1. If ranks
/// connect to each other at a loopback address, all of them are on one host.
bool is_loopback(const std::string& host);

/// Returns whether all ranks are on this host, according to the launcher's variables.
bool is_one_host(const RankEnv& env);

/// Returns the number of CPUs that this process may use: the CPUs of its affinity, but
/// at most the CPU quota of its container (control groups, version 2), rounded up.
int usable_cpus();

}  // namespace tandem
