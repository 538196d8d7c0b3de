#include "tandem/comm/backends/hierarchical.h"

#include <deque>
#include <thread>
#include <utility>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/exchange.h"
#include "tandem/comm/rpc/rpc.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

// Interval between polls of an operation between hosts. The thread sleeps in between.
constexpr std::chrono::microseconds kNap{50};

// The groups of an all_reduce. Each host has one group for the reduction and another
// for the broadcast, so that the operations of each group have the same order on all
// its ranks.
struct Levels {
  std::unique_ptr<Communicator> host;
  std::unique_ptr<Communicator> host_again;
  // Group of the first rank of each host; null on other ranks.
  std::unique_ptr<Communicator> hosts;

  bool leads() const {
    return host->rank() == 0;
  }
};

class Reductions;

// An all_reduce in progress.
class Reduction : public Work {
 public:
  enum Level { on_host, between_hosts, back_on_host, done };

  Reduction(Reductions& all, Levels& levels, at::Tensor tensor, ReduceOp op)
      : all_(all), levels_(levels), tensor_(std::move(tensor)), op_(op) {
    start_level();
  }

  bool test() override;
  void wait(std::chrono::milliseconds timeout) override;

  void on_end(std::function<void()> then) override {
    then_ = std::move(then);
    if (level_ == done) {
      then_();
    }
  }

  Level level() const {
    return level_;
  }

  // Advances as far as possible without waiting, at most to the level `limit`.
  void advance(Level limit) {
    while (level_ < limit && work_->test()) {
      wait_for_level({});
    }
  }

  void wait_for_level(std::chrono::milliseconds timeout) {
    try {
      work_->wait(timeout);
    } catch (const CommError& error) {
      // Rank numbers in the error refer to the level's group, so the message names the
      // level.
      throw std::runtime_error(
          (level_ == between_hosts ? "between hosts: " : "on this host: ") +
          error.cause());
    }
    level_ = static_cast<Level>(level_ + 1);
    start_level();
    if (level_ == done && then_) {
      then_();
    }
  }

 private:
  void start_level() {
    if (level_ == on_host) {
      work_ = levels_.host->all_reduce(tensor_, op_);
    } else if (level_ == between_hosts) {
      work_ = levels_.leads() ? levels_.hosts->all_reduce(tensor_, op_) : work_;
    } else if (level_ == back_on_host) {
      work_ = levels_.host_again->broadcast(tensor_, 0);
    }
  }

  Reductions& all_;
  Levels& levels_;
  at::Tensor tensor_;
  ReduceOp op_;
  Level level_ = on_host;
  // Work of this level, or of the previous level if this rank does not take part in
  // this level.
  WorkPtr work_;
  std::function<void()> then_;
};

// All reductions in progress, in the order of their start. A reduction never overtakes
// an earlier reduction, so all ranks start the operations of a level's group in the
// same order.
class Reductions {
 public:
  explicit Reductions(Levels levels) : levels_(std::move(levels)) {}

  Levels& levels() {
    return levels_;
  }

  WorkPtr start(const at::Tensor& tensor, ReduceOp op) {
    rethrow();
    auto mine = std::make_shared<Reduction>(*this, levels_, tensor, op);
    queue_.push_back(mine);
    meet_on_host(*mine);
    return mine;
  }

  void progress() {
    if (error_ != nullptr) {
      return;
    }
    note_error([&] {
      auto limit = Reduction::done;
      for (const auto& reduction : queue_) {
        reduction->advance(limit);
        limit = reduction->level();
      }
    });
    while (!queue_.empty() && queue_.front()->level() == Reduction::done) {
      queue_.pop_front();
    }
  }

  bool test(const Reduction& reduction) {
    progress();
    return reduction.level() == Reduction::done || error_ != nullptr;
  }

  void wait(const Reduction& reduction, std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    while (!test(reduction)) {
      if (timeout.count() > 0 && deadline.passed()) {
        throw std::runtime_error("timed out waiting for other ranks");
      }
      wait_for_front(timeout);
    }
    if (reduction.level() != Reduction::done) {
      rethrow();
    }
  }

 private:
  // Waits briefly for the other ranks of the host, so that the level between hosts,
  // which takes longest, can begin. Operations progress only in a rank's calls, and
  // there are few calls during backward. The wait is short, because the ranks of a host
  // start a reduction almost simultaneously.
  void meet_on_host(const Reduction& reduction) {
    constexpr std::chrono::milliseconds kPatience{2};
    const Deadline deadline(kPatience);
    progress();
    while (reduction.level() == Reduction::on_host && error_ == nullptr &&
           !deadline.passed()) {
      std::this_thread::yield();
      progress();
    }
  }

  void wait_for_front(std::chrono::milliseconds timeout) {
    Reduction& front = *queue_.front();
    if (levels_.leads() && front.level() == Reduction::between_hosts) {
      std::this_thread::sleep_for(kNap);
      return;
    }
    note_error([&] { front.wait_for_level(timeout); });
  }

  template <typename Action>
  void note_error(const Action& action) {
    try {
      action();
    } catch (const std::exception&) {
      error_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

  Levels levels_;
  std::deque<std::shared_ptr<Reduction>> queue_;
  std::exception_ptr error_;
};

bool Reduction::test() {
  return all_.test(*this);
}

void Reduction::wait(std::chrono::milliseconds timeout) {
  all_.wait(*this, timeout);
}

// An operation of the group of all ranks. Its wait() also advances reductions, because
// another rank may wait for a reduction before it takes part in this operation.
class WorldWork : public Work {
 public:
  WorldWork(Reductions& reductions, WorkPtr work)
      : reductions_(reductions), work_(std::move(work)) {}

  bool test() override {
    reductions_.progress();
    return work_->test();
  }
  void wait(std::chrono::milliseconds timeout) override {
    const Deadline deadline(timeout);
    while (!test() && (timeout.count() == 0 || !deadline.passed())) {
      std::this_thread::sleep_for(kNap);
    }
    // The operation has ended or timed out, so wait() below returns or throws
    // immediately.
    constexpr std::chrono::milliseconds kNoTime{1};
    work_->wait(timeout.count() == 0 ? timeout : kNoTime);
  }
  void on_end(std::function<void()> then) override {
    work_->on_end(std::move(then));
  }

 private:
  Reductions& reductions_;
  WorkPtr work_;
};

class HierarchicalCommunicator : public Communicator, public RpcBackend {
 public:
  HierarchicalCommunicator(std::unique_ptr<Communicator> world, Levels levels)
      : Communicator(world->rank(), world->size(), "shm+" + world->backend()),
        world_(std::move(world)),
        reductions_(std::move(levels)) {}

  at::Tensor make_buffer(int64_t numel, at::ScalarType dtype) override {
    return reductions_.levels().host->make_buffer(numel, dtype);
  }
  Communicator* ranks_of_host() override {
    return reductions_.levels().host.get();
  }
  RpcBackend* rpc_backend() override {
    return this;
  }

  std::unique_ptr<Rpc> make_rpc() override {
    return tandem::make_rpc(*world_);
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    const auto start = Clock::now();
    auto work = reductions_.start(tensor, op);
    add_waited(Clock::now() - start);
    return work;
  }
  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return with_progress(world_->broadcast(tensor, root));
  }
  // Between hosts, an all_reduce by levels sends fewer bytes than a reduce_scatter of
  // all ranks, unless each host has only one rank.
  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    return is_own_slice(output, input)
               ? do_all_reduce(input, ReduceOp::sum)
               : with_progress(world_->reduce_scatter(output, input));
  }
  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    return with_progress(world_->all_gather(output, input));
  }
  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    return with_progress(world_->scatter(output, input, root));
  }
  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    return with_progress(world_->gather(output, input, root));
  }
  // A message of Gloo ends only in its own wait(), so WorldWork could not poll it.
  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    return world_->send(tensor, peer, tag);
  }
  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    return world_->recv(tensor, peer, tag);
  }
  std::unique_ptr<Communicator> do_split(int color) override {
    return world_->split(color);
  }

 private:
  [[nodiscard]] WorkPtr with_progress(WorkPtr work) {
    return std::make_shared<WorldWork>(reductions_, std::move(work));
  }

  std::unique_ptr<Communicator> world_;
  Reductions reductions_;
};

// The ranks of `world` on this rank's host: the first rank, this rank's number among
// them, and their count.
struct Neighbours {
  int first = -1;
  int rank = 0;
  int size = 0;
};

Neighbours find_neighbours(Communicator& world, const std::string& host) {
  const auto all = world.stack_digests(host, "hosts");
  Neighbours found;
  for (int other = 0; other < world.size(); ++other) {
    if (all[other].equal(all[world.rank()])) {
      found.first = found.first < 0 ? other : found.first;
      found.rank += other < world.rank() ? 1 : 0;
      ++found.size;
    }
  }
  return found;
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(
    std::unique_ptr<Communicator> world, const std::shared_ptr<StoreClient>& store,
    const std::string& name, const std::string& host, const ShmOptions& options) {
  const Neighbours neighbours = find_neighbours(*world, host);
  if (reduce_count(neighbours.size, ReduceOp::max, "hosts", *world) == 1) {
    return world;
  }
  Levels levels;
  std::string why_not;
  levels.host = try_shm_communicator(
      store, name + "/host" + std::to_string(neighbours.first), neighbours.rank,
      neighbours.size, options, why_not);
  const bool can = levels.host != nullptr;
  const auto first_that_cannot = static_cast<int>(reduce_count(
      can ? world->size() : world->rank(), ReduceOp::min, "hosts", *world));
  if (first_that_cannot < world->size()) {
    why_not = world->broadcast_text(why_not, first_that_cannot, "hosts");
    if (world->rank() == 0) {
      log_info(
          "[comm] using " + world->backend() + " without shared memory: " + why_not);
    }
    return world;
  }
  levels.host_again = levels.host->split(0);
  levels.hosts = world->split(levels.leads() ? 0 : 1);
  // Waits, because a rank that leaves earlier would break connections that other ranks
  // are still making.
  world->barrier("hosts");
  if (!levels.leads()) {
    levels.hosts.reset();
  }
  return std::make_unique<HierarchicalCommunicator>(
      std::move(world), std::move(levels));
}

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::shm_gloo>, const BackendParts& parts) {
  auto world = make_world<BackendKind::gloo>(parts);
  return make_hierarchical_communicator(
      std::move(world), parts.store, "world", host_identity(), shm_options(parts));
}

}  // namespace tandem
