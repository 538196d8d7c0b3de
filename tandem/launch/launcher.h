#pragma once

#include <string>
#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// How to start the ranks of one host. Names and defaults are torchrun's.
struct LaunchOptions {
  // The program that each rank runs, with its arguments.
  std::vector<std::string> command;

  // Ranks on this host.
  int nproc_per_node = 1;

  // Hosts in the run, and which one this is. With more than one, ranks meet at
  // master_addr:master_port, where the launcher of node 0 listens.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  // 0 takes a free port; one host only.
  int master_port = 0;

  // Rank 0 of this host shares our terminal; the others' lines get a prefix.
  // Otherwise every rank's lines do.
  bool first_rank_owns_terminal = false;

  // Between SIGTERM and SIGKILL, when a rank failed or we were told to stop.
  double grace_seconds = 5;

  // More variables for the ranks.
  Variables variables;
};

/// Starts the ranks, forwards their output and our signals, and ends them all
/// when one fails. Returns the exit code for this program: 0 when all ranks
/// exited with 0, 2 when they were misused, 1 otherwise, after one line that
/// says which rank failed first and how. No rank outlives the call; the kernel
/// kills them when the launcher itself is killed.
///
/// Call from the main thread. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1,
/// SIGCHLD and SIGPIPE are blocked from then on.
///
/// Throws ConfigError when an option cannot be or the program does not exist.
int launch(const LaunchOptions& options);

/// OMP_NUM_THREADS and its like for a host with `nproc` ranks: the usable CPUs
/// divided among them, where the user did not set them. And what keeps
/// libraries under LibTorch quiet. For every process that trains.
Variables rank_variables(int nproc);

}  // namespace tandem
