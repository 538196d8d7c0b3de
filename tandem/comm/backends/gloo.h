#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"

namespace tandem {

/// Settings of a Gloo group.
struct GlooOptions {
  // Address of the network interface to use, so that Gloo does not guess it from the
  // host name. For several hosts, use local_address_towards().
  std::string address = "127.0.0.1";

  // Timeout of each operation.
  std::chrono::milliseconds timeout = kDefaultCommTimeout;
  // Timeout of forming the group; zero: the value of `timeout`.
  std::chrono::milliseconds forming_timeout{0};
  // Number of attempts to form the group. Gloo accepts every connection to its port as
  // a rank. After a connection from another process, all ranks retry at other ports.
  // All attempts but the last accept only addresses of the ranks' machines
  // (AddressFilter). The last attempt accepts all addresses, for networks that
  // translate addresses. If there is only one attempt, the ranks do not check that each
  // connection leads to a rank.
  int attempts = 1;
};

/// Returns a communicator of rank processes over LibTorch's ProcessGroupGloo (TCP).
///
/// The ranks find each other through `store`, with keys that begin with `name`. Use a
/// different `name` for every group. The order of summation depends on the position in
/// the buffer (ring all-reduce). With three or more ranks, the last bits of results
/// therefore depend on how a buffer is divided. float16 and bfloat16 are sent without
/// conversion, and each addition rounds to that type. LibTorch's Gloo has no
/// reduce_scatter: each rank receives its slice from all ranks, and sums the slices in
/// rank order, with the bits of shared memory.
///
/// Throws CommError if not all ranks arrive within the timeout, or if every attempt
/// fails. After failed attempts the error names an address that connected and does not
/// belong to a rank, if there is one.
std::unique_ptr<Communicator> make_gloo_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const GlooOptions& options = {});

}  // namespace tandem
