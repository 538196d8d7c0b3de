#pragma once

#include <functional>
#include <string>

#include "tandem/comm/join/join.h"

namespace tandem {

struct SpawnOptions {
  CommOptions join;

  // Hosts, each of which starts this program, and which one this is. Their ranks
  // meet at master_addr:master_port, an address of host 0.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;

  // Ranks' lines of standard output get "[rank 1] " in front. False: rank 0 of this
  // host shares our terminal.
  bool prefix_output = false;
  // Seconds between SIGTERM and SIGKILL, when a rank failed.
  double grace_seconds = 5;
};

/// Runs `body` on `num_ranks` processes of this host and returns when all have ended.
///
/// The ranks are started by fork and exec of this program with the same arguments
/// (fork alone would leave LibTorch's threads behind). So everything before the call
/// runs in every rank too; there the call runs `body` and ends the process, without
/// coming back: what follows the call, and destructors of main()'s variables, run in
/// the parent only. Calls are told apart by their order, which has to be the same in
/// every run of the program; a rank passes over those before its own. Data goes to
/// ranks by arguments, the environment and files.
///
/// Call it from the main thread, on every host alike. An exception ends its rank: the
/// first ends the others, and this call throws ConfigError or Error with that rank's
/// reason. When the parent is killed, so are the ranks. SIGINT and SIGTERM are passed
/// on to the ranks; then this call throws.
///
/// Throws ConfigError also in a process that already is one of several ranks (use
/// join_run() there).
void spawn(
    int num_ranks, const std::function<void(Communicator&)>& body,
    const SpawnOptions& options = {});

}  // namespace tandem
