#include "tandem/base/rank_env.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Variable names of one launcher. The first launcher whose `rank` is set is used.
struct LauncherNames {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* node_rank;
  // Variable with the name of the run. For SLURM, name_of_run() uses two other
  // variables.
  const char* run;
};

const LauncherNames kLaunchers[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
     "TORCHELASTIC_RUN_ID"},
    // OMPI_COMM_WORLD_NODE_RANK counts processes on the host, not hosts.
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "PMIX_NAMESPACE"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_NODEID", ""},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "",
     "PMI_JOBID"},
};

// Returns the names of the launcher that read_rank_env() found.
const LauncherNames& names_of(const RankEnv& env) {
  return *std::find_if(
      std::begin(kLaunchers), std::end(kLaunchers),
      [&](const LauncherNames& names) { return env.source == names.source; });
}

template <typename T>
T number_in(const std::string& name, const std::string& text, T least, T most) {
  const auto value = parse_number<T>(text);
  if (!value || *value < least || *value > most) {
    throw ConfigError(
        "[env] " + name + " is '" + text + "', expected a whole number from " +
        std::to_string(least) + " to " + std::to_string(most) + "; correct it");
  }
  return *value;
}

int required(const GetEnv& get, const std::string& name, int least, int most) {
  const auto text = get(name);
  if (!text) {
    throw ConfigError(
        "[env] " + name +
        " is not set, but other variables of a launcher are; set it, or unset the "
        "others");
  }
  return number_in(name, *text, least, most);
}

int optional_number(
    const GetEnv& get, const std::string& name, int fallback, int least, int most) {
  const auto text = name.empty() ? std::nullopt : get(name);
  return text ? number_in(name, *text, least, most) : fallback;
}

int64_t slurm_number(const GetEnv& get, const std::string& name) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  return number_in<int64_t>(name, get(name).value_or(""), 0, kMost);
}

// Returns whether srun started this process as a rank. SLURM sets its variables in
// shells too. Steps of srun are numbered from 0; batch scripts and interactive shells
// have the highest step numbers.
bool is_step_of_srun(const GetEnv& get) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  if (!get("SLURM_STEP_ID")) {
    return false;
  }
  // A shell started by `srun --pty bash`.
  const bool shell = get("SLURM_PTY_PORT") && get("SLURM_NTASKS") == "1";
  return slurm_number(get, "SLURM_STEP_ID") < kFirstSpecialStep && !shell;
}

bool started_by(const LauncherNames& names, const GetEnv& get) {
  return get(names.rank) &&
         (std::string(names.source) != "slurm" || is_step_of_srun(get));
}

// Returns the port for a SLURM step. Two steps have different ports if their job
// numbers differ by less than 160 and their step numbers by less than 100. All ports
// are below Linux's ephemeral ports.
int slurm_port(const GetEnv& get) {
  constexpr int64_t kFirst = 15000;
  constexpr int64_t kPorts = 16384;
  const int64_t place =
      slurm_number(get, "SLURM_JOB_ID") * 101 + slurm_number(get, "SLURM_STEP_ID");
  return static_cast<int>(kFirst + place % kPorts);
}

std::string name_of_run(const LauncherNames& names, const GetEnv& get) {
  const std::string source = names.source;
  if (source == "slurm") {
    const auto job = get("SLURM_JOB_ID");
    return job ? "slurm job " + *job + " step " + *get("SLURM_STEP_ID") : "";
  }
  const auto name = get(names.run).value_or("");
  // torchrun uses the name "none" for every run without --rdzv-id.
  if (name.empty() || (source == "env" && name == "none")) {
    return "";
  }
  return source == "env" ? name : source + " job " + name;
}

// Returns the hosts of the SLURM step, which may be fewer than those of its job.
std::optional<std::string> slurm_nodes(const GetEnv& get) {
  const auto nodes = get("SLURM_STEP_NODELIST");
  return nodes ? nodes : get("SLURM_NODELIST");
}

// Returns the first host of a list: "host5" for "host[5-9],other".
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
          "[env] MASTER_ADDR is empty, expected the host of rank 0; correct it");
    }
    env.master_addr = *addr;
  } else if (const auto nodes = slurm_nodes(get); slurm && nodes) {
    env.master_addr = first_slurm_host(*nodes);
  }
  const bool has_own_port = slurm && get("SLURM_JOB_ID");
  const int fallback = has_own_port ? slurm_port(get) : env.master_port;
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
        ", expected at most WORLD_SIZE, which is " + std::to_string(env.world_size) +
        "; correct one of them");
  }
  if (env.local_rank >= env.local_world_size) {
    throw ConfigError(
        "[env] LOCAL_RANK is " + std::to_string(env.local_rank) + ", expected 0 to " +
        std::to_string(env.local_world_size - 1) + " for LOCAL_WORLD_SIZE " +
        std::to_string(env.local_world_size) + "; correct one of them");
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
    env.run = name_of_run(names, get);
    env.world_size = required(get, names.world_size, 1, kMost);
    env.rank = required(get, names.rank, 0, env.world_size - 1);
    read_master(names, get, env);
    // If the ranks connect to a loopback address, all ranks are on this host.
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
  // Without this error, each process would train alone.
  if (get("WORLD_SIZE")) {
    required(get, "RANK", 0, std::numeric_limits<int>::max());
  }
  return std::nullopt;
}

void forget_launcher(const RankEnv& env) {
  unsetenv(names_of(env).rank);
}

std::string size_variable(const RankEnv& env) {
  return names_of(env).world_size;
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
  if (!env.run.empty()) {
    variables.emplace_back("TORCHELASTIC_RUN_ID", env.run);
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
