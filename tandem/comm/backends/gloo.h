#pragma once

#include <memory>
#include <set>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"

namespace tandem {

/// Settings of a Gloo group.
struct GlooOptions {
  // Address of the network interface to use, so that Gloo does not guess it from the
  // host name. See local_address_towards() for several hosts.
  std::string address = "127.0.0.1";

  // Longest time an operation may take.
  std::chrono::milliseconds timeout{300'000};
  // Longest delay of a rank at the start; zero: the value of `timeout`.
  std::chrono::milliseconds forming_timeout{0};
  // Number of attempts to form the group. Gloo accepts every connection to its port as
  // a rank; after a wrong connection all ranks retry at other ports. All attempts but
  // the last accept only addresses of the ranks' machines (AddressFilter). The last
  // attempt is for networks that translate addresses. With one attempt the ranks do not
  // check that each connection leads to a rank.
  int attempts = 1;
  // Addresses from which ranks may connect; empty: all addresses. With several attempts
  // the ranks find the addresses themselves, unless `admit_anyone` is set.
  std::set<std::string> admitted;
  bool admit_anyone = false;

  // Threads that move data. One thread keeps operations in order of launch.
  int threads = 1;
};

/// Returns a communicator of rank processes over LibTorch's ProcessGroupGloo (TCP).
///
/// The ranks meet in `store` under `name`, which must be new for every group. The order
/// of summation depends on the position in the buffer (ring), so with three or more
/// ranks the last bits of results depend on how a buffer is divided. float16 and
/// bfloat16 are sent unconverted, and each addition rounds. reduce_scatter is an
/// all_reduce of which each rank keeps its slice, because LibTorch's Gloo has no
/// reduce_scatter.
///
/// Throws CommError if not all ranks arrive within the timeout, or if every attempt
/// fails. The error then names the addresses that connected and do not belong to ranks.
std::unique_ptr<Communicator> make_gloo_communicator(
    std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
    const GlooOptions& options = {});

}  // namespace tandem
