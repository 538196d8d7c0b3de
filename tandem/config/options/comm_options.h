#pragma once

#include <chrono>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Backend of the communicator. `automatic`: the fastest backend for the hosts and
/// devices of the ranks.
enum class BackendKind { automatic, shm, shm_gloo, gloo, mpi, nccl, thread };

struct BackendRow {
  BackendKind value;
  const char* name;
  const char* help;
  // True if the backend connects only ranks of one host.
  bool one_host = false;
  // True if the backend has its own launcher, such as mpirun, which has to start the
  // ranks.
  bool has_launcher = false;
};
template <>
struct Choices<BackendKind> {
  static constexpr BackendRow rows[] = {
      {BackendKind::automatic, "auto",
       "shm on one host, shm+gloo on several hosts, nccl if each rank has a GPU"},
      {BackendKind::shm, "shm", "shared memory between processes of one host", true},
      {BackendKind::gloo, "gloo", "TCP between processes and hosts"},
      {BackendKind::shm_gloo, "shm+gloo",
       "shared memory on each host, TCP between one rank per host"},
      {BackendKind::mpi, "mpi", "Open MPI, for ranks that mpirun started", false, true},
      {BackendKind::nccl, "nccl",
       "NCCL for tensors on GPUs, as auto for other tensors; needs --device cuda"},
      {BackendKind::thread, "thread", "for thread ranks", true}};
};

/// Backend, timeout and authentication of ranks.
struct CommOptions {
  BackendKind backend = BackendKind::automatic;
  // Timeout of joining and of each operation, in seconds.
  double timeout_seconds = 300;

  // Path of the token file; "": the path in TANDEM_TOKEN_FILE (base/store/token.h).
  std::string token_file;
  // True if every process that reaches the run may join it without a token.
  bool insecure = false;
  // True if host 0 listens on all its interfaces.
  bool listen_all = false;

  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  }

  template <typename Table>
  static void describe(Table& table) {
    using O = CommOptions;
    table.section("ranks");
    table.add("backend", &O::backend, "transport between ranks");
    table
        .add(
            "timeout_seconds", &O::timeout_seconds,
            "timeout of joining and of each operation, in seconds")
        .between(0.001, 1e7);
    table
        .add(
            "token_file", &O::token_file,
            "file with the token of a run on several hosts, equal on each, mode 0600 "
            "(also TANDEM_TOKEN_FILE)")
        .local()
        .of_one_start();
    table
        .add(
            "insecure", &O::insecure,
            "several hosts without a token: any process that reaches the port can join")
        .of_one_start();
    table
        .add(
            "listen_all", &O::listen_all,
            "host 0 listens on all its interfaces, not only on that of --master-addr")
        .local()
        .of_one_start();
  }
};

}  // namespace tandem
