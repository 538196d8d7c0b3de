#pragma once

#include <functional>
#include <string>

#include "tandem/comm/join/join.h"

namespace tandem {

/// Options of spawn().
struct SpawnOptions {
  // Settings of the communication between the ranks.
  CommOptions join;

  // Number of hosts, and number of this host from 0. Start this program on each host.
  // The ranks of all hosts connect to master_addr:master_port, an address of host 0.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;

  // True: lines of standard output get a prefix such as "[rank 1] ". False: the lines
  // get no prefix, and the first rank of this host shares the program's terminal.
  bool prefix_output = false;
  // Time between SIGTERM and SIGKILL for the other ranks after a rank failed, in
  // seconds.
  double grace_seconds = 5;
};

/// Runs `body` in `num_ranks` processes of this host and returns when all have ended.
///
/// Each rank is a new process of this program with the same arguments, because fork
/// alone would lose LibTorch's threads. Therefore, the code before the call also runs
/// in every rank. In a rank the call runs `body` and exits: code after the call, and
/// destructors of main()'s variables, run only in the parent. If a program calls
/// spawn() several times, a rank skips the calls before the call that started it. Ranks
/// count the calls, so the order of the calls must be equal in all processes. Pass data
/// to ranks in arguments, environment variables or files.
///
/// Call it from the main thread. On several hosts, pass the same options except
/// node_rank. An exception ends its rank. The first exception also ends the other
/// ranks, and the parent's call throws ConfigError or Error with the message of that
/// exception. If the parent is killed, the kernel kills the ranks. The parent forwards
/// SIGINT and SIGTERM to the ranks, and its call then throws.
///
/// Also throws ConfigError in a process that another launcher started as one of several
/// ranks; use join_run() there.
void spawn(
    int num_ranks, const std::function<void(Communicator&)>& body,
    const SpawnOptions& options = {});

}  // namespace tandem
