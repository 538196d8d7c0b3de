#pragma once

#include <chrono>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// How ranks talk to each other. `automatic`: the fastest for where they are.
enum class BackendKind { automatic, shm, shm_gloo, gloo, mpi, nccl, thread };

struct BackendRow {
  BackendKind value;
  const char* name;
  const char* help;
  // Ranks of one host only.
  bool one_host = false;
  // What starts the ranks also brings them together.
  bool has_launcher = false;
};
template <>
struct Choices<BackendKind> {
  static constexpr BackendRow rows[] = {
      {BackendKind::automatic, "auto",
       "shm on one host, shm+gloo on several; nccl where each rank has a GPU"},
      {BackendKind::shm, "shm", "shared memory between processes of one host", true},
      {BackendKind::gloo, "gloo", "TCP between processes and hosts"},
      {BackendKind::shm_gloo, "shm+gloo",
       "shared memory on each host, TCP between one rank of each"},
      {BackendKind::mpi, "mpi", "Open MPI, for ranks that mpirun started", false, true},
      {BackendKind::nccl, "nccl",
       "NCCL for what is on GPUs, and as auto for what is not; needs --device cuda"},
      {BackendKind::thread, "thread", "for thread ranks", true}};
};

/// How ranks meet and talk.
struct CommOptions {
  BackendKind backend = BackendKind::automatic;
  // Longest wait for another rank: to come, and in each operation.
  double timeout_seconds = 300;

  // How ranks know each other (base/store/token.h).
  std::string token_file;
  bool insecure = false;
  bool listen_all = false;

  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  }

  template <typename Table>
  static void describe(Table& table) {
    using O = CommOptions;
    table.section("ranks");
    table.add("backend", &O::backend, "how ranks talk to each other");
    table.add("timeout_seconds", &O::timeout_seconds, "longest wait for another rank")
        .between(0.001, 1e7);
    table
        .add(
            "token_file", &O::token_file,
            "file that lets a host into a run on several, of mode 0600 (also "
            "TANDEM_TOKEN_FILE)")
        .local()
        .of_one_start();
    table
        .add(
            "insecure", &O::insecure,
            "several hosts without a token: whoever reaches the port can join")
        .of_one_start();
    table
        .add(
            "listen_all", &O::listen_all,
            "host 0 listens on all its interfaces, not only on that of the master's "
            "address")
        .local()
        .of_one_start();
  }
};

}  // namespace tandem
