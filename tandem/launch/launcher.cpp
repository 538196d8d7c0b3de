#include "tandem/launch/launcher.h"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/socket.h"
#include "tandem/base/store.h"
#include "tandem/launch/report.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

namespace {

void check(const LaunchOptions& options) {
  constexpr int kMostRanks = 4096;
  if (options.command.empty()) {
    throw ConfigError("[launch] no program is named; add it after the flags");
  }
  if (options.nproc_per_node < 1 || options.nproc_per_node > kMostRanks) {
    throw ConfigError(
        "[launch] " + std::to_string(options.nproc_per_node) +
        " processes on this host, expected 1 to " + std::to_string(kMostRanks) +
        "; change --nproc");
  }
  if (options.nnodes < 1 || options.node_rank < 0 ||
      options.node_rank >= options.nnodes) {
    throw ConfigError(
        "[launch] node rank " + std::to_string(options.node_rank) + " of " +
        std::to_string(options.nnodes) +
        " nodes; --node-rank counts from 0 to nnodes - 1");
  }
  if (options.nnodes > 1 && options.master_port == 0) {
    throw ConfigError(
        "[launch] several nodes need one port that all know; set --master-port");
  }
}

// A port that was free a moment ago, for programs that open their own store.
int free_port(const std::string& host) {
  const auto listener = listen_at("tcp:" + host + ":0");
  return std::stoi(listener.address.substr(listener.address.rfind(':') + 1));
}

// Where the ranks of this run meet: here, or at node 0.
struct Rendezvous {
  std::string directory;
  std::unique_ptr<StoreServer> server;
  std::string address;

  explicit Rendezvous(const LaunchOptions& options) {
    if (options.nnodes == 1) {
      directory = make_private_directory();
      server = std::make_unique<StoreServer>("unix:" + directory + "/store");
      address = server->address();
      return;
    }
    address = "tcp:" + options.master_addr + ":" + std::to_string(options.master_port);
    if (options.node_rank == 0) {
      server = std::make_unique<StoreServer>(address);
    }
  }

  ~Rendezvous() {
    server.reset();
    if (!directory.empty()) {
      remove_all(directory);
    }
  }
};

Process start_rank(
    const LaunchOptions& options, const RankEnv& env, const Variables& defaults) {
  ProcessOptions process;
  process.command = options.command;
  process.variables = to_variables(env);
  process.variables.insert(process.variables.end(), defaults.begin(), defaults.end());
  process.variables.insert(
      process.variables.end(), options.variables.begin(), options.variables.end());
  process.pipe_output = !(options.first_rank_owns_terminal && env.local_rank == 0);
  return Process(process);
}

// A killed rank is the cause; then a rank's own error; then what followed.
int weight(
    const Supervisor::Ending& ending, const std::optional<FailureReport>& report) {
  if (ending.status.ok()) {
    return 0;
  }
  if (ending.status.signal != 0) {
    return ending.stopped_by_us &&
                   (ending.status.signal == SIGTERM ||
                    ending.status.signal == SIGKILL || ending.status.signal == SIGINT)
               ? 1
               : 4;
  }
  if (ending.stopped_by_us && !report) {
    return 1;
  }
  return report && report->consequence ? 2 : 3;
}

int conclude(
    const std::vector<Supervisor::Ending>& endings, const StoreServer* store,
    int stop_signal) {
  const auto report_of = [&](int rank) {
    return store == nullptr ? std::nullopt : find_report(*store, rank);
  };
  const Supervisor::Ending* worst = &endings.front();
  for (const auto& ending : endings) {
    if (weight(ending, report_of(ending.rank)) >
        weight(*worst, report_of(worst->rank))) {
      worst = &ending;
    }
  }
  if (worst->status.ok()) {
    return 0;
  }
  const auto report = report_of(worst->rank);
  if (report && worst->status.signal == 0) {
    const bool everybody = report->code == 2 || endings.size() == 1 || stop_signal != 0;
    const std::string who =
        everybody ? "" : "rank " + std::to_string(worst->rank) + " failed: ";
    log_error(who + report->message);
    return report->code;
  }
  if (stop_signal != 0) {
    log_error(fmt::format("stopped by SIG{}", sigabbrev_np(stop_signal)));
    return 1;
  }
  log_error(fmt::format(
      "rank {} (pid {}) {}; the other ranks were stopped", worst->rank, worst->pid,
      worst->status.describe()));
  return 1;
}

}  // namespace

Variables rank_variables(int nproc) {
  Variables variables;
  const auto threads = std::to_string(std::max(1, usable_cpus() / std::max(1, nproc)));
  const Variables defaults = {
      {"OMP_NUM_THREADS", threads},
      {"OPENBLAS_NUM_THREADS", get_env("OMP_NUM_THREADS").value_or(threads)},
      {"GLOG_minloglevel", "2"},
      {"TORCH_CPP_LOG_LEVEL", "ERROR"},
      {"UCX_HANDLE_ERRORS", "none"},
      {"UCX_DEBUG_SIGNO", "0"},
  };
  for (const auto& entry : defaults) {
    if (!get_env(entry.first)) {
      variables.push_back(entry);
    }
  }
  return variables;
}

int launch(const LaunchOptions& options) {
  check(options);
  // Grandchildren whose parent died come to us instead of to init.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Supervisor supervisor(options.grace_seconds);
  const Rendezvous rendezvous(options);
  RankEnv env;
  env.world_size = options.nnodes * options.nproc_per_node;
  env.local_world_size = options.nproc_per_node;
  env.node_rank = options.node_rank;
  env.master_addr = options.master_addr;
  env.master_port =
      options.master_port > 0 ? options.master_port : free_port(options.master_addr);
  env.store = rendezvous.address;
  const auto defaults = rank_variables(options.nproc_per_node);
  for (int local = 0; local < options.nproc_per_node; ++local) {
    env.local_rank = local;
    env.rank = options.node_rank * options.nproc_per_node + local;
    supervisor.add(
        env.rank, start_rank(options, env, defaults),
        "[rank " + std::to_string(env.rank) + "] ");
  }
  const auto endings = supervisor.run();
  return conclude(endings, rendezvous.server.get(), supervisor.stop_signal());
}

}  // namespace tandem
