#include "tandem/comm/shm/shm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
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

const at::Tensor& in_main_memory(const at::Tensor& tensor) {
  if (tensor.defined() && !tensor.device().is_cpu()) {
    throw ConfigError(
        "[comm] backend shm needs tensors in main memory, got one on " +
        tensor.device().str() + "; use --device cpu");
  }
  return tensor;
}

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
    return collectives_.start(shm_all_reduce(collectives_, in_main_memory(tensor), op));
  }
  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return collectives_.start(
        shm_broadcast(collectives_, in_main_memory(tensor), root));
  }
  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    return collectives_.start(shm_reduce_scatter(
        collectives_, in_main_memory(output), in_main_memory(input)));
  }
  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    return collectives_.start(
        shm_all_gather(collectives_, in_main_memory(output), in_main_memory(input)));
  }
  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    return collectives_.start(
        shm_scatter(collectives_, in_main_memory(output), in_main_memory(input), root));
  }
  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    return collectives_.start(
        shm_gather(collectives_, in_main_memory(output), in_main_memory(input), root));
  }
  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    return messages_.send(in_main_memory(tensor), peer, tag);
  }
  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    return messages_.recv(in_main_memory(tensor), peer, tag);
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
  const SplitRank place = rank_in_split(color);
  const auto colors = stack(at::full({1}, color, at::kInt), "split");
  ShmGroup part = group_;
  part.rank = place.rank;
  part.family_ranks.clear();
  int first = -1;
  for (int other = 0; other < size(); ++other) {
    if (colors.data_ptr<int>()[other] == color) {
      first = first < 0 ? other : first;
      part.family_ranks.push_back(group_.family_ranks[static_cast<size_t>(other)]);
    }
  }
  // The first rank of each color creates the region.
  auto mine = at::zeros({kAddressBytes}, at::kChar);
  if (place.size > 1 && place.rank == 0) {
    part.region = ShmRegion::create(place.size);
    const std::string address = part.region->address();
    TANDEM_CHECK(
        static_cast<int64_t>(address.size()) < kAddressBytes,
        "the address is too long");
    std::copy(address.begin(), address.end(), mine.data_ptr<int8_t>());
  }
  const auto addresses = stack(mine, "split");
  if (place.size > 1 && place.rank > 0) {
    const auto* text = reinterpret_cast<const char*>(addresses[first].data_ptr());
    part.region = ShmRegion::attach(text, place.size);
  }
  if (place.size > 1) {
    part.region->enter(place.rank);
  }
  barrier("split");
  return part;
}

std::unique_ptr<Communicator> ShmCommunicator::do_split(int color) {
  const ShmGroup part = split_group(color);
  if (part.size() == 1) {
    return make_single_communicator();
  }
  return std::make_unique<ShmCommunicator>(part);
}

// Meeting of the ranks in the store. Rank 0 creates the region, and every rank reports
// whether it could attach. Rank 0 then publishes whether all ranks could.
class Meeting {
 public:
  Meeting(StoreClient& store, std::string name, int rank, int size)
      : store_(store), name_(std::move(name)), rank_(rank), size_(size) {}

  // Returns the region, or null with the reason in `why_not` if a rank could not
  // attach. Throws errors of the store, because the run cannot continue without it.
  std::shared_ptr<ShmRegion> meet(const Deadline& forming, std::string& why_not) {
    const bool creates = rank_ == 0;
    const auto address = creates ? "" : store_.get(key("region"), forming.left());
    std::shared_ptr<ShmRegion> region;
    std::string report;
    try {
      region = creates ? ShmRegion::create(size_) : ShmRegion::attach(address, size_);
      region->enter(rank_);
    } catch (const ConfigError& error) {
      report = error.what();
    }
    if (creates) {
      store_.set(key("region"), region != nullptr ? region->address() : "none");
    }
    store_.set(key("came", rank_), report);
    if (creates) {
      store_.set(key("verdict"), verdict(forming));
    }
    why_not = store_.get(key("verdict"), forming.left());
    return why_not.empty() ? region : nullptr;
  }

 private:
  std::string key(const std::string& what) const {
    return name_ + "/shm/" + what;
  }
  std::string key(const std::string& what, int rank) const {
    return key(what) + "/" + std::to_string(rank);
  }

  std::string verdict(const Deadline& forming) {
    for (int other = 0; other < size_; ++other) {
      const auto report = store_.get(key("came", other), forming.left());
      if (!report.empty()) {
        return report;
      }
    }
    return "";
  }

  StoreClient& store_;
  std::string name_;
  int rank_;
  int size_;
};

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
  group.region = Meeting(*store, name, rank, size).meet(forming, why_not);
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
