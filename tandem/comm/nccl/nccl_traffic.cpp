#include "tandem/comm/nccl/nccl_traffic.h"

#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;
using Stage = NcclFlight::Stage;
using std::chrono::milliseconds;

// How long a call stays with its operation so that NCCL can put it on the stream, which
// it mostly has by then.
constexpr std::chrono::microseconds kLaunchTime{500};
// How often the communicator's thread looks.
constexpr milliseconds kWhileLaunching{1};
constexpr milliseconds kWhileRunning{10};
// Answers of the store take longer than NCCL's.
constexpr milliseconds kBetweenStoreCalls{2};

// Lets others look; what NCCL and the device do takes microseconds, what ranks do
// longer.
void pause(Lock& lock, int round) {
  constexpr int kAtOnce = 20;
  lock.unlock();
  if (round >= kAtOnce) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  lock.lock();
}

// The id of a group of NCCL's, from its rank 0 to the others by way of the store.
class IdInStore {
 public:
  IdInStore(
      std::shared_ptr<StoreClient> store, std::shared_ptr<const NcclApi> nccl,
      std::string key, int rank)
      : store_(std::move(store)),
        nccl_(std::move(nccl)),
        key_(std::move(key)),
        rank_(rank) {}

  std::optional<NcclUniqueId> operator()() {
    NcclUniqueId id{};
    if (rank_ == 0) {
      if (nccl_->get_unique_id(&id) != NcclResult::success) {
        throw std::runtime_error(
            std::string("ncclGetUniqueId failed: ") + nccl_->get_last_error(nullptr));
      }
      store_->set(key_, std::string(id.bytes, sizeof(id.bytes)));
      return id;
    }
    if (Clock::now() < next_) {
      return std::nullopt;
    }
    if (!store_->has({key_})) {
      next_ = Clock::now() + kBetweenStoreCalls;
      return std::nullopt;
    }
    const auto text = store_->get(key_, {});
    TANDEM_CHECK(text.size() == sizeof(id.bytes), "an id of another size");
    std::memcpy(id.bytes, text.data(), sizeof(id.bytes));
    return id;
  }

 private:
  std::shared_ptr<StoreClient> store_;
  std::shared_ptr<const NcclApi> nccl_;
  std::string key_;
  int rank_;
  Clock::time_point next_;
};

}  // namespace

class NcclTraffic::UnderWay : public Work {
 public:
  UnderWay(NcclTraffic& owner, Flight flight)
      : owner_(owner), flight_(std::move(flight)) {}

  bool test() override {
    const Lock lock(owner_.mutex_);
    owner_.look();
    return flight_->stage == Stage::ended || flight_->stage == Stage::failed;
  }

  void wait(milliseconds timeout) override {
    if (timeout.count() > 0 && !flight_->captured) {
      wait_until_ended(Deadline(timeout));
      return;
    }
    Lock lock(owner_.mutex_);
    owner_.poll(lock, flight_, flight_->deadline, [&] {
      return flight_->stage == Stage::launched || flight_->stage == Stage::ended;
    });
    lock.unlock();
    const auto& streams = *owner_.device_.streams;
    streams.wait(streams.current_stream(), flight_->done.get());
  }

  void wait_on_host() override {
    if (flight_->captured) {
      throw std::runtime_error("the host cannot wait for what a graph holds");
    }
    wait_until_ended(flight_->deadline);
  }

 private:
  void wait_until_ended(const Deadline& deadline) {
    Lock lock(owner_.mutex_);
    owner_.poll(
        lock, flight_, deadline, [&] { return flight_->stage == Stage::ended; });
  }

  NcclTraffic& owner_;
  Flight flight_;
};

NcclTraffic::NcclTraffic(
    const NcclDevice& device, std::shared_ptr<StoreClient> store, std::string name,
    int rank, int size, const NcclOptions& options)
    : device_(device),
      store_(std::move(store)),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      options_(options) {
  form();
  watch_ = std::thread([this] { watch(); });
}

void NcclTraffic::form() {
  const Deadline forming(
      options_.forming_timeout.count() > 0 ? options_.forming_timeout
                                           : options_.timeout);
  store_->set(name_ + "/here/" + std::to_string(rank_), "1");
  all_ = std::make_unique<NcclGroup>(
      device_, rank_, size_, IdInStore(store_, device_.nccl, name_ + "/id", rank_),
      options_.ending_timeout);
  for (;;) {
    all_->progress();
    if (all_->formed()) {
      return;
    }
    if (forming.passed()) {
      throw std::runtime_error(
          missing_ranks() + " within " + std::to_string(forming.time().count()) +
          " ms");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

std::string NcclTraffic::missing_ranks() {
  std::vector<std::string> missing;
  for (int other = 0; other < size_; ++other) {
    if (!store_->has({name_ + "/here/" + std::to_string(other)})) {
      missing.push_back("rank " + std::to_string(other));
    }
  }
  return missing.empty() ? "all ranks came, but NCCL did not connect them"
                         : join(missing) + " did not come";
}

WorkPtr NcclTraffic::start(Flight flight) {
  Lock lock(mutex_);
  return fly(lock, *all_, std::move(flight));
}

WorkPtr NcclTraffic::start_message(int from, int to, Flight flight) {
  Lock lock(mutex_);
  if (failure_) {
    throw_failure(flight->name);
  }
  return fly(lock, channel(from, to), std::move(flight));
}

WorkPtr NcclTraffic::fly(Lock& lock, NcclGroup& group, Flight flight) {
  if (failure_) {
    throw_failure(flight->name);
  }
  group.push(flight);
  const auto end = Clock::now() + kLaunchTime;
  look();
  for (int round = 0;
       group.formed() && flight->stage < Stage::launched && Clock::now() < end;
       ++round) {
    pause(lock, round);
    look();
  }
  if (flight->stage == Stage::failed) {
    throw_failure(flight->name);
  }
  changed_.notify_one();
  return std::make_shared<UnderWay>(*this, std::move(flight));
}

void NcclTraffic::launch_graph(
    const std::function<void()>& launch, const std::function<Flight()>& make_flight) {
  Lock lock(mutex_);
  look();
  const bool on_its_way = all_->is_last(graph_);
  if (!on_its_way) {
    graph_ = make_flight();
  }
  if (failure_) {
    throw_failure(graph_->name);
  }
  // It may have to wait for the device, for as long as a rank does not come.
  lock.unlock();
  launch();
  lock.lock();
  graph_->deadline = Deadline(graph_->deadline.time());
  all_->push_launched(graph_);
  lock.unlock();
  if (!on_its_way) {
    changed_.notify_one();
  }
}

NcclGroup& NcclTraffic::channel(int from, int to) {
  const auto found = channels_.find({from, to});
  if (found != channels_.end()) {
    return *found->second;
  }
  const int place = rank_ == from ? 0 : 1;
  // Before it is among the others, which are all there.
  auto group = std::make_unique<NcclGroup>(
      device_, place, 2,
      IdInStore(
          store_, device_.nccl,
          name_ + "/from" + std::to_string(from) + "to" + std::to_string(to), place),
      options_.ending_timeout);
  return *(channels_[{from, to}] = std::move(group));
}

void NcclTraffic::watch() {
  set_thread_rank(rank_, size_);
  Lock lock(mutex_);
  try {
    device_.streams->use_device();
  } catch (const std::exception& error) {
    fail("", first_line(error));
  }
  while (!leaving_) {
    bool any = false;
    bool unlaunched = false;
    for_each_group([&](const NcclGroup& group) {
      any = any || !group.flights().empty();
      unlaunched = unlaunched || group.has_unlaunched();
    });
    if (any) {
      changed_.wait_for(lock, unlaunched ? kWhileLaunching : kWhileRunning);
    } else {
      changed_.wait(lock);
    }
    look();
  }
}

// Takes everything further, and gives up where it takes too long.
void NcclTraffic::look() {
  std::string operation;
  try {
    for_each_group([&](NcclGroup& group) {
      operation = group.flights().empty() ? "" : group.flights().front()->name;
      group.progress();
      if (!group.flights().empty() && group.flights().front()->deadline.passed()) {
        fail_late(*group.flights().front(), group.flights().front()->deadline);
      }
    });
  } catch (const std::exception& error) {
    fail(operation, first_line(error));
  }
}

void NcclTraffic::fail(const std::string& operation, const std::string& cause) {
  if (failure_) {
    return;
  }
  failure_ = {operation, cause};
  for_each_group([](NcclGroup& group) { group.abort(); });
}

void NcclTraffic::fail_late(const NcclFlight& flight, const Deadline& deadline) {
  fail(
      flight.name, "rank " + std::to_string(rank_) + " had no answer within " +
                       std::to_string(deadline.time().count()) + " ms");
}

void NcclTraffic::throw_failure(const std::string& operation) const {
  const auto& [failed, cause] = *failure_;
  const bool another = !failed.empty() && operation != failed;
  throw std::runtime_error((another ? failed + " failed before: " : "") + cause);
}

template <typename Done>
void NcclTraffic::poll(
    Lock& lock, const Flight& flight, const Deadline& deadline, Done&& done) {
  for (int round = 0;; ++round) {
    look();
    if (done()) {
      return;
    }
    if (flight->stage != Stage::failed && deadline.passed()) {
      fail_late(*flight, deadline);
    }
    if (flight->stage == Stage::failed) {
      throw_failure(flight->name);
    }
    pause(lock, round);
  }
}

NcclTraffic::~NcclTraffic() {
  {
    const Lock lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_one();
  if (watch_.joinable()) {
    watch_.join();
  }
  // The others may be anywhere: to end in order would be to wait for them.
  if (!failure_ && std::uncaught_exceptions() == 0) {
    finish();
  }
  // All at once: one may wait for another.
  for_each_group([](NcclGroup& group) { group.abort(); });
}

void NcclTraffic::finish() {
  const Deadline deadline(options_.ending_timeout);
  const auto until = [&](const auto& done) {
    for (;;) {
      bool all = true;
      for_each_group([&](NcclGroup& group) { all = done(group) && all; });
      if (all) {
        return;
      }
      if (deadline.passed()) {
        throw std::runtime_error(
            "not ended within " + std::to_string(deadline.time().count()) + " ms");
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  try {
    until([](NcclGroup& group) {
      group.progress();
      return group.flights().empty();
    });
    for_each_group([](NcclGroup& group) { group.begin_to_finish(); });
    until([](NcclGroup& group) { return group.finish(); });
  } catch (const std::exception& error) {
    log_debug("[comm] nccl: " + name_ + " was aborted at its end: " + error.what());
  }
}

}  // namespace tandem
