#pragma once

#include <memory>
#include <set>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"

namespace tandem {

struct GlooOptions {
  // Address of the network interface to use; named, so Gloo never guesses from
  // the host name. See local_address_towards() for several hosts.
  std::string address = "127.0.0.1";

  // Longest time an operation may take.
  std::chrono::milliseconds timeout{300'000};
  // Longest time that a rank may be late at the start; zero: as long.
  std::chrono::milliseconds forming_timeout{0};
  // How often the ranks try to form the group. Gloo takes whoever connects to its port
  // for a rank; then all try again at other ports. All but the last attempt admit only
  // addresses of the ranks' machines (store/admission.h): the last is for networks that
  // translate addresses on the way. With one attempt nobody looks whether each
  // connection leads to a rank.
  int attempts = 1;
  // The only addresses from which ranks connect; empty: anyone. With several attempts
  // the ranks find them out, unless they are to answer anyone at once.
  std::set<std::string> admitted;
  bool admit_anyone = false;

  // --- speed ---
  // Threads that move data. One keeps operations in order of launch.
  int threads = 1;
};

/// A communicator of rank processes over LibTorch's ProcessGroupGloo (TCP).
///
/// The ranks meet in `store` under `name`, which must be new for every group. The order
/// of summation depends on the position in the buffer (ring), so at three or more ranks
/// the last bits of results depend on how a buffer is cut. float16 and bfloat16 travel
/// as such, and each addition rounds. reduce_scatter is an all_reduce of which each
/// rank keeps its slice: LibTorch's Gloo has none.
///
/// Throws CommError when not all ranks come within the timeout, or when every attempt
/// fails: it then names the addresses that have connected and are none of the ranks'.
std::unique_ptr<Communicator> make_gloo_communicator(
    std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
    const GlooOptions& options = {});

}  // namespace tandem
