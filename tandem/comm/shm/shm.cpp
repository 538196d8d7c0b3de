#include "tandem/comm/shm/shm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/rpc/rpc.h"
#include "tandem/comm/shm/collectives.h"
#include "tandem/comm/shm/messages.h"
#include "tandem/comm/shm/operation.h"
#include "tandem/comm/shm/shm_rpc.h"

namespace tandem {

namespace {

class ShmCommunicator : public Communicator, public RpcBackend {
 public:
  explicit ShmCommunicator(const ShmGroup& group)
      : Communicator(group.rank, group.size(), "shm"),
        group_(group),
        messages_(group),
        collectives_(group) {}

  RpcBackend* rpc_backend() override {
    return this;
  }

  std::unique_ptr<Rpc> make_rpc() override {
    return make_shm_rpc(split_group(0));
  }

  bool shares_memory() const override {
    return true;
  }

  at::Tensor make_buffer(int64_t numel, at::ScalarType dtype) override {
    const auto buffer = group_.family->segments().allocate(numel, dtype);
    return buffer.defined() ? buffer : Communicator::make_buffer(numel, dtype);
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    return shm_all_reduce(collectives_, tensor, op);
  }
  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return shm_broadcast(collectives_, tensor, root);
  }
  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    return shm_reduce_scatter(collectives_, output, input);
  }
  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    return shm_all_gather(collectives_, output, input);
  }
  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    return shm_scatter(collectives_, output, input, root);
  }
  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    return shm_gather(collectives_, output, input, root);
  }
  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    return messages_.send(tensor, peer, tag);
  }
  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    return messages_.recv(tensor, peer, tag);
  }
  std::unique_ptr<Communicator> do_split(int color) override;

  int failed_peer() const override {
    const int rank = collectives_.failed_rank();
    return rank >= 0 ? rank : messages_.failed_rank();
  }

 private:
  // Returns the subgroup of the ranks with this color. A subgroup of one rank has no
  // region.
  ShmGroup split_group(int color);

  // Size of the tensor of characters in which a region's address is sent.
  static constexpr int64_t kAddressBytes = 256;

  ShmGroup group_;
  ShmMessages messages_;
  ShmCollectives collectives_;
};

ShmGroup ShmCommunicator::split_group(int color) {
  const Part part = find_part(color);
  ShmGroup group = group_;
  group.rank = part.rank;
  group.family_ranks.clear();
  for (const int other : part.ranks) {
    group.family_ranks.push_back(group_.family_ranks[static_cast<size_t>(other)]);
  }
  // The first rank of each color creates the region.
  auto mine = at::zeros({kAddressBytes}, at::kChar);
  if (part.size() > 1 && part.rank == 0) {
    group.region = ShmRegion::create(part.size());
    const std::string address = group.region->address();
    TANDEM_CHECK(
        static_cast<int64_t>(address.size()) < kAddressBytes,
        "the address is too long");
    std::copy(address.begin(), address.end(), mine.data_ptr<int8_t>());
  }
  const auto addresses = stack(mine, "split");
  if (part.size() > 1 && part.rank > 0) {
    const auto first = addresses[part.ranks.front()];
    group.region =
        ShmRegion::attach(reinterpret_cast<const char*>(first.data_ptr()), part.size());
  }
  if (part.size() > 1) {
    group.region->enter(part.rank);
  }
  barrier("split");
  return group;
}

std::unique_ptr<Communicator> ShmCommunicator::do_split(int color) {
  const ShmGroup group = split_group(color);
  if (group.size() == 1) {
    return make_single_communicator();
  }
  return std::make_unique<ShmCommunicator>(group);
}

// Returns the region of a group whose ranks meet in the store, or null with the reason
// in `why_not` if a rank could not attach. Throws errors of the store, because the run
// cannot continue without it.
//
// Rank 0 creates the region, and every rank reports whether it could attach. Rank 0
// then publishes whether all ranks could.
std::shared_ptr<ShmRegion> meet(
    StoreClient& store, const std::string& name, int rank, int size,
    const Deadline& forming, std::string& why_not) {
  const std::string place = name + "/shm/";
  const auto get = [&](const std::string& key) {
    return store.get(place + key, forming.left());
  };
  const bool creates = rank == 0;
  const auto address = creates ? "" : get("region");
  std::shared_ptr<ShmRegion> region;
  std::string report;
  try {
    region = creates ? ShmRegion::create(size) : ShmRegion::attach(address, size);
    region->enter(rank);
  } catch (const ConfigError& error) {
    report = error.what();
  }
  if (creates) {
    store.set(place + "region", region != nullptr ? region->address() : "none");
  }
  store.set(place + "came/" + std::to_string(rank), report);
  if (creates) {
    std::string verdict;
    for (int other = 0; verdict.empty() && other < size; ++other) {
      verdict = get("came/" + std::to_string(other));
    }
    store.set(place + "verdict", verdict);
  }
  why_not = get("verdict");
  return why_not.empty() ? region : nullptr;
}

}  // namespace

std::unique_ptr<Communicator> try_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options, std::string& why_not) {
  if (size == 1) {
    return make_single_communicator();
  }
  ShmGroup group;
  group.rank = rank;
  group.timeout = options.timeout;
  const Deadline forming(
      options.forming_timeout.count() > 0 ? options.forming_timeout : options.timeout);
  group.region = meet(*store, name, rank, size, forming, why_not);
  if (group.region == nullptr) {
    return nullptr;
  }
  for (int other = 0; other < size; ++other) {
    group.family_ranks.push_back(other);
  }
  group.family = std::make_shared<ShmFamily>(group.region, rank, size);
  return std::make_unique<ShmCommunicator>(group);
}

std::unique_ptr<Communicator> make_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options) {
  std::string why_not;
  auto comm = try_shm_communicator(store, name, rank, size, options, why_not);
  if (comm == nullptr) {
    throw ConfigError(why_not);
  }
  return comm;
}

ShmOptions shm_options(const BackendParts& parts) {
  ShmOptions shm;
  shm.timeout = parts.options.timeout();
  shm.forming_timeout = parts.forming.left();
  return shm;
}

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::shm>, const BackendParts& parts) {
  const RankEnv& env = parts.env;
  if (!parts.ranks_share_host()) {
    throw ConfigError(
        "[comm] backend shm needs all ranks on one host, but only " +
        std::to_string(env.local_world_size) + " of " + std::to_string(env.world_size) +
        " ranks are on this host; use --backend auto, or correct LOCAL_WORLD_SIZE");
  }
  return make_shm_communicator(
      parts.store, "world", env.rank, env.world_size, shm_options(parts));
}

}  // namespace tandem
