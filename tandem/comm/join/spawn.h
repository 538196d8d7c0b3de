#pragma once

#include <functional>
#include <string>

#include "tandem/comm/join/join.h"

namespace tandem {

/// Options of spawn().
struct SpawnOptions {
  // Communication between the ranks.
  CommOptions join;

  // Number of hosts, each of which starts this program, and number of this host. The
  // ranks meet at master_addr:master_port, an address of host 0.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;

  // Lines of standard output get a prefix such as "[rank 1] ". Without the prefix, rank
  // 0 of this host shares the program's terminal.
  bool prefix_output = false;
  // Seconds between SIGTERM and SIGKILL after a rank failed.
  double grace_seconds = 5;
};

/// Runs `body` in `num_ranks` processes of this host and returns when all have ended.
///
/// Each rank starts this program again, with the same arguments (fork alone would lose
/// LibTorch's threads). So the code before the call runs in every rank too. In a rank
/// the call runs `body` and exits: code after the call, and destructors of main()'s
/// variables, run only in the parent. Ranks identify their call by its number, so the
/// order of calls must be the same in every process; a rank skips earlier calls. Pass
/// data to ranks by arguments, the environment or files.
///
/// Call it from the main thread, and on every host with the same options. An exception
/// ends its rank. The first exception ends the other ranks, and this call throws
/// ConfigError or Error with its message. If the parent is killed, the kernel kills the
/// ranks. SIGINT and SIGTERM are forwarded to the ranks; then this call throws.
///
/// Throws ConfigError also in a process that already is one of several ranks (use
/// join_run() there).
void spawn(
    int num_ranks, const std::function<void(Communicator&)>& body,
    const SpawnOptions& options = {});

}  // namespace tandem
