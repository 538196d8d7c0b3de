#include "tandem/base/rank_env.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// The names that one launcher uses. The first whose `rank` is set wins.
struct LauncherNames {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* node_rank;
};

const LauncherNames kLaunchers[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"},
    // Its ..._NODE_RANK counts processes on the host, not hosts.
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ""},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_NODEID"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""},
};

int number_in(const std::string& name, const std::string& text, int least, int most) {
  const auto value = parse_number<int>(text);
  if (!value || *value < least || *value > most) {
    throw ConfigError(
        "[env] " + name + " is '" + text + "', expected a whole number from " +
        std::to_string(least) + " to " + std::to_string(most) + "; set " + name +
        " to one");
  }
  return *value;
}

int required(const GetEnv& get, const std::string& name, int least, int most) {
  const auto text = get(name);
  if (!text) {
    throw ConfigError(
        "[env] environment variable " + name +
        " expected, but not set; set it, or unset the launcher's other variables");
  }
  return number_in(name, *text, least, most);
}

int optional_number(
    const GetEnv& get, const std::string& name, int fallback, int least, int most) {
  const auto text = name.empty() ? std::nullopt : get(name);
  return text ? number_in(name, *text, least, most) : fallback;
}

// A SLURM shell sets SLURM_NTASKS too; only srun starts ranks.
bool started_by(const LauncherNames& names, const GetEnv& get) {
  if (!get(names.rank)) {
    return false;
  }
  if (std::string(names.source) != "slurm") {
    return true;
  }
  const auto job = get("SLURM_JOB_NAME");
  return get("SLURM_STEP_ID").has_value() && job != "bash" && job != "interactive";
}

// "host[5-9],other" -> "host5".
std::string first_slurm_host(const std::string& list) {
  const std::string first = list.substr(0, list.find_first_of(", "));
  const size_t bracket = list.find('[');
  if (bracket == std::string::npos || bracket > first.size()) {
    return first;
  }
  const size_t end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

void read_master(const LauncherNames& names, const GetEnv& get, RankEnv& env) {
  const bool slurm = std::string(names.source) == "slurm";
  if (const auto addr = get("MASTER_ADDR")) {
    if (addr->empty()) {
      throw ConfigError(
          "[env] MASTER_ADDR is empty, expected a host; set it to rank 0's");
    }
    env.master_addr = *addr;
  } else if (const auto nodes = get("SLURM_NODELIST"); slurm && nodes) {
    env.master_addr = first_slurm_host(*nodes);
  }
  int fallback = env.master_port;
  if (const auto job = get("SLURM_JOB_ID"); slurm && job) {
    const size_t digits = std::min<size_t>(4, job->size());
    fallback = 15000 + std::atoi(job->substr(job->size() - digits).c_str());
  }
  env.master_port = optional_number(get, "MASTER_PORT", fallback, 1, 65535);
  env.agent_store = get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.store = get("TANDEM_STORE").value_or("");
}

double cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return std::atof(quota.c_str()) / period;
}

void check_local(const RankEnv& env) {
  if (env.local_world_size > env.world_size) {
    throw ConfigError(
        "[env] LOCAL_WORLD_SIZE is " + std::to_string(env.local_world_size) +
        ", but WORLD_SIZE only " + std::to_string(env.world_size) + "; correct one");
  }
  if (env.local_rank >= env.local_world_size) {
    throw ConfigError(
        "[env] LOCAL_RANK is " + std::to_string(env.local_rank) + ", expected 0 to " +
        std::to_string(env.local_world_size - 1) + " for LOCAL_WORLD_SIZE " +
        std::to_string(env.local_world_size) + "; correct one");
  }
}

}  // namespace

std::optional<std::string> get_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<RankEnv> read_rank_env(const GetEnv& get) {
  for (const auto& names : kLaunchers) {
    if (!started_by(names, get)) {
      continue;
    }
    constexpr int kMost = 1 << 20;
    RankEnv env;
    env.source = names.source;
    env.world_size = required(get, names.world_size, 1, kMost);
    env.rank = required(get, names.rank, 0, env.world_size - 1);
    read_master(names, get, env);
    // Ranks that meet at a loopback address are all on this host.
    const bool one_host = (get("MASTER_ADDR") && is_loopback(env.master_addr)) ||
                          (env.source == "slurm" && get("SLURM_STEP_NUM_NODES") == "1");
    env.local_rank =
        optional_number(get, names.local_rank, one_host ? env.rank : 0, 0, kMost);
    env.local_world_size = optional_number(
        get, names.local_world_size, one_host ? env.world_size : 1, 1, kMost);
    if (get("LOCAL_WORLD_SIZE") && env.source == "env") {
      check_local(env);
    }
    env.node_rank = optional_number(get, names.node_rank, 0, 0, kMost);
    return env;
  }
  // Otherwise each process would train as if it were the only one.
  if (get("WORLD_SIZE")) {
    required(get, "RANK", 0, std::numeric_limits<int>::max());
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> to_variables(const RankEnv& env) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", std::to_string(env.rank)},
      {"WORLD_SIZE", std::to_string(env.world_size)},
      {"LOCAL_RANK", std::to_string(env.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(env.local_world_size)},
      {"GROUP_RANK", std::to_string(env.node_rank)},
      {"MASTER_ADDR", env.master_addr},
      {"MASTER_PORT", std::to_string(env.master_port)},
  };
  if (!env.store.empty()) {
    variables.emplace_back("TANDEM_STORE", env.store);
  }
  return variables;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

bool is_one_host(const RankEnv& env) {
  return env.local_world_size == env.world_size || is_loopback(env.master_addr);
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    cpus = std::max(1, CPU_COUNT(&set));
  }
  const double quota = std::ceil(cgroup_cpus());
  return quota < cpus ? std::max(1, static_cast<int>(quota)) : cpus;
}

}  // namespace tandem
