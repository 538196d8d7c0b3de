#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Type of a rank.
enum class RankKind { process, thread };
template <>
struct Choices<RankKind> {
  static constexpr Choice<RankKind> rows[] = {
      {RankKind::process, "process"},
      {RankKind::thread, "thread", "all ranks in one process"}};
};

/// Program that starts the ranks.
enum class LauncherKind { tandem, mpirun };
template <>
struct Choices<LauncherKind> {
  static constexpr Choice<LauncherKind> rows[] = {
      {LauncherKind::tandem, "tandem"}, {LauncherKind::mpirun, "mpirun"}};
};

/// Number, type and hosts of the ranks.
struct RankOptions {
  // Value of `nproc` for one rank per usable CPU.
  static constexpr int64_t kPerCpu = 0;

  int64_t nproc = 1;
  RankKind kind = RankKind::process;
  LauncherKind launcher = LauncherKind::tandem;
  int64_t nnodes = 1;
  // Least number of hosts if hosts may join and leave; 0: all hosts take part.
  int64_t min_nnodes = 0;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 0;
  double grace_seconds = 30;
  // Number of times that failed ranks are started again.
  int64_t max_restarts = 0;
  // Time, in seconds, for which a rank waits before the launcher reports the wait; 0:
  // no reports.
  double stall_warning = 30;
  // Address and port at which the launcher of host 0 serves metrics; port 0: no
  // metrics.
  std::string metrics_address = "127.0.0.1";
  int64_t metrics_port = 0;

  template <typename Table>
  static void describe(Table& table) {
    using O = RankOptions;
    table.section("ranks");
    table.add("nproc", &O::nproc, "number of ranks on this host")
        .between(1, 4096)
        .or_word("auto", kPerCpu, "one rank per usable CPU")
        .also({"--nproc-per-node", "--num-processes", "--gpus", "-g"})
        .local();
    table.add("rank_type", &O::kind, "type of each rank").formerly("ranks");
    table.add(
        "launcher", &O::launcher,
        "program that starts the ranks; --backend mpi needs mpirun");
    table
        .add(
            "nnodes", &O::nnodes,
            "number of hosts; MIN:MAX: hosts may join and leave (--min-nnodes MIN)")
        .between(1, 1 << 16)
        .also({"--num-machines", "--nodes", "-n"});
    table
        .add(
            "min_nnodes", &O::min_nnodes,
            "least number of hosts, if hosts may join and leave; needs --out; 0: all "
            "hosts take part")
        .between(0, 1 << 16)
        .of_one_start();
    table.add("node_rank", &O::node_rank, "number of this host, from 0")
        .between(0, (1 << 16) - 1)
        .also({"--machine-id", "--nr", "-nr"})
        .local()
        .of_one_start();
    table.add("master_addr", &O::master_addr, "address of host 0 (also MASTER_ADDR)")
        .local()
        .of_one_start();
    table
        .add(
            "master_port", &O::master_port,
            "port of host 0 (also MASTER_PORT); 0: a free port")
        .between(0, 65535)
        .local()
        .of_one_start();
    table
        .add(
            "grace_seconds", &O::grace_seconds,
            "seconds to save after SIGTERM, SIGINT or SIGHUP before ranks are killed")
        .between(0, 1e6);
    table
        .add(
            "max_restarts", &O::max_restarts,
            "restarts of all ranks from the newest checkpoint after a rank fails; "
            "needs --out")
        .between(0, 1e6)
        .of_one_start();
    table
        .add(
            "stall_warning", &O::stall_warning,
            "seconds of waiting after which the launcher names the ranks that others "
            "wait for; 0: never")
        .between(0, 1e6)
        .of_one_start();
    table
        .add(
            "metrics_address", &O::metrics_address,
            "address of host 0 at which metrics are served")
        .local()
        .of_one_start();
    table
        .add(
            "metrics_port", &O::metrics_port,
            "port at which the launcher of host 0 serves metrics for Prometheus at "
            "/metrics, and statuses of ranks as JSON at /status; 0: none")
        .between(0, 65535)
        .local()
        .of_one_start();
  }
};

}  // namespace tandem
