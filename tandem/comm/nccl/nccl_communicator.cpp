#include "tandem/comm/nccl/nccl_communicator.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;
using Flight = std::shared_ptr<NcclFlight>;
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

NcclDataType number_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return NcclDataType::float32;
    case at::kDouble:
      return NcclDataType::float64;
    case at::kHalf:
      return NcclDataType::float16;
    case at::kBFloat16:
      return NcclDataType::bfloat16;
    case at::kLong:
      return NcclDataType::int64;
    case at::kInt:
      return NcclDataType::int32;
    case at::kChar:
      return NcclDataType::int8;
    case at::kByte:
    case at::kBool:
      return NcclDataType::uint8;
    default:
      throw ConfigError(
          std::string("[comm] backend nccl cannot reduce ") +
          c10::toString(tensor.scalar_type()) + "; convert it to float");
  }
}

NcclRedOp to_nccl(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return NcclRedOp::min;
    case ReduceOp::max:
      return NcclRedOp::max;
    default:
      return NcclRedOp::sum;
  }
}

size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
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
    if (Clock::now() < next_ || !store_->has({key_})) {
      next_ = std::max(next_, Clock::now() + kBetweenStoreCalls);
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

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(
      const NcclDevice& device, std::shared_ptr<StoreClient> store, std::string name,
      int rank, int size, const NcclOptions& options)
      : Communicator(rank, size, "nccl"),
        device_(device),
        store_(std::move(store)),
        name_(std::move(name)),
        options_(options) {
    form();
    // Groups that are split from this one later have their own.
    options_.forming_timeout = {};
    watch_ = std::thread([this] { watch(); });
  }

  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  at::Device device() const override {
    return device_.device;
  }

  std::unique_ptr<Communicator> split(int color) override {
    const Place place = place_in_split(color);
    const auto name =
        name_ + "/split" + std::to_string(num_splits_++) + "." + std::to_string(color);
    return make_nccl_communicator(
        device_, store_, name, place.rank, place.size, options_);
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    auto flight = start("all_reduce", {tensor});
    const auto dtype = number_type(tensor);
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      void* data = tensor.data_ptr();
      return nccl->all_reduce(
          data, data, count_of(tensor), dtype, to_nccl(op), comm, stream);
    };
    return fly(all_, std::move(flight));
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    auto flight = start("broadcast", {tensor});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      void* data = tensor.data_ptr();
      return nccl->broadcast(
          data, data, tensor.nbytes(), NcclDataType::uint8, root, comm, stream);
    };
    return fly(all_, std::move(flight));
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    auto flight = start("reduce_scatter", {output, input});
    const auto dtype = number_type(input);
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->reduce_scatter(
          input.data_ptr(), output.data_ptr(), count_of(output), dtype, NcclRedOp::sum,
          comm, stream);
    };
    return fly(all_, std::move(flight));
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    auto flight = start("all_gather", {output, input});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->all_gather(
          input.data_ptr(), output.data_ptr(), input.nbytes(), NcclDataType::uint8,
          comm, stream);
    };
    return fly(all_, std::move(flight));
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    auto flight = start("scatter", {output, input});
    flight->call = [=](NcclComm comm, StreamHandle stream) {
      return exchange(true, input, output, root, comm, stream);
    };
    return fly(all_, std::move(flight));
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    auto flight = start("gather", {output, input});
    flight->call = [=](NcclComm comm, StreamHandle stream) {
      return exchange(false, output, input, root, comm, stream);
    };
    return fly(all_, std::move(flight));
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int) override {
    auto flight = start("send", {tensor});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->send(
          tensor.data_ptr(), tensor.nbytes(), NcclDataType::uint8, 1, comm, stream);
    };
    return fly(channel(rank(), peer), std::move(flight));
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int) override {
    auto flight = start("recv", {tensor});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->recv(
          tensor.data_ptr(), tensor.nbytes(), NcclDataType::uint8, 0, comm, stream);
    };
    return fly(channel(peer, rank()), std::move(flight));
  }

 private:
  class NcclWork;
  using Group = std::unique_ptr<NcclGroup>;

  void form();
  std::string missing_ranks();
  Flight start(const char* operation, const std::vector<at::Tensor>& tensors);
  WorkPtr fly(const Group& group, Flight flight);
  const Group& channel(int from, int to);
  NcclResult exchange(
      bool scatter, const at::Tensor& whole, const at::Tensor& part, int root,
      NcclComm comm, StreamHandle stream) const;

  void watch();
  void look();
  void fail(const std::string& operation, const std::string& cause);
  void fail_late(const NcclFlight& flight, const Deadline& deadline);
  [[noreturn]] void throw_failure(const std::string& operation) const;
  template <typename Done>
  void poll(Lock& lock, const Flight& flight, const Deadline& deadline, Done&& done);
  void finish();

  template <typename Action>
  void for_each_group(const Action& action) {
    if (all_) {
      action(*all_);
    }
    for (auto& [way, group] : channels_) {
      action(*group);
    }
  }

  NcclDevice device_;
  std::shared_ptr<StoreClient> store_;
  std::string name_;
  NcclOptions options_;
  int num_splits_ = 0;
  int64_t num_operations_ = 0;

  // Of all that follows.
  std::mutex mutex_;
  std::condition_variable changed_;
  Group all_;
  // By (from, to).
  std::map<std::pair<int, int>, Group> channels_;
  // What failed first.
  struct Failure {
    std::string operation;
    std::string cause;
  };
  std::optional<Failure> failure_;
  bool leaving_ = false;
  std::thread watch_;
};

class NcclCommunicator::NcclWork : public Work {
 public:
  NcclWork(NcclCommunicator& owner, Flight flight)
      : owner_(owner), flight_(std::move(flight)) {}

  bool test() override {
    const Lock lock(owner_.mutex_);
    owner_.look();
    return flight_->stage == Stage::ended || flight_->stage == Stage::failed;
  }

  void wait(milliseconds timeout) override {
    if (timeout.count() > 0) {
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
    wait_until_ended(flight_->deadline);
  }

 private:
  void wait_until_ended(const Deadline& deadline) {
    Lock lock(owner_.mutex_);
    owner_.poll(
        lock, flight_, deadline, [&] { return flight_->stage == Stage::ended; });
  }

  NcclCommunicator& owner_;
  Flight flight_;
};

void NcclCommunicator::form() {
  const Deadline forming(
      options_.forming_timeout.count() > 0 ? options_.forming_timeout
                                           : options_.timeout);
  store_->set(name_ + "/here/" + std::to_string(rank()), "1");
  all_ = std::make_unique<NcclGroup>(
      device_, rank(), size(), IdInStore(store_, device_.nccl, name_ + "/id", rank()),
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

std::string NcclCommunicator::missing_ranks() {
  std::vector<std::string> missing;
  for (int other = 0; other < size(); ++other) {
    if (!store_->has({name_ + "/here/" + std::to_string(other)})) {
      missing.push_back("rank " + std::to_string(other));
    }
  }
  return missing.empty() ? "all ranks came, but NCCL did not connect them"
                         : join(missing) + " did not come";
}

Flight NcclCommunicator::start(
    const char* operation, const std::vector<at::Tensor>& tensors) {
  ++num_operations_;
  for (const auto& tensor : tensors) {
    TANDEM_CHECK(
        !tensor.defined() || tensor.device() == device_.device,
        std::string(operation) + " over NCCL on " + device_.device.str() +
            " was given a tensor on " + tensor.device().str());
  }
  return std::make_shared<NcclFlight>(
      device_.streams, std::string(operation) + " #" + std::to_string(num_operations_),
      options_.timeout);
}

WorkPtr NcclCommunicator::fly(const Group& group, Flight flight) {
  Lock lock(mutex_);
  if (failure_) {
    throw_failure(flight->name);
  }
  group->push(flight);
  const auto end = Clock::now() + kLaunchTime;
  look();
  for (int round = 0;
       group->formed() && flight->stage < Stage::launched && Clock::now() < end;
       ++round) {
    pause(lock, round);
    look();
  }
  if (flight->stage == Stage::failed) {
    throw_failure(flight->name);
  }
  changed_.notify_one();
  return std::make_shared<NcclWork>(*this, std::move(flight));
}

const NcclCommunicator::Group& NcclCommunicator::channel(int from, int to) {
  const Lock lock(mutex_);
  Group& group = channels_[{from, to}];
  if (!group) {
    const int place = rank() == from ? 0 : 1;
    group = std::make_unique<NcclGroup>(
        device_, place, 2,
        IdInStore(
            store_, device_.nccl,
            name_ + "/from" + std::to_string(from) + "to" + std::to_string(to), place),
        options_.ending_timeout);
  }
  return group;
}

// scatter or gather, as messages of one group of calls.
NcclResult NcclCommunicator::exchange(
    bool scatter, const at::Tensor& whole, const at::Tensor& part, int root,
    NcclComm comm, StreamHandle stream) const {
  const auto& nccl = *device_.nccl;
  const size_t bytes = part.nbytes();
  NcclResult first = nccl.group_start();
  const auto move = [&](bool send, char* data, int peer) {
    const auto result =
        send ? nccl.send(data, bytes, NcclDataType::uint8, peer, comm, stream)
             : nccl.recv(data, bytes, NcclDataType::uint8, peer, comm, stream);
    first = first == NcclResult::success ? result : first;
  };
  if (rank() == root) {
    for (int other = 0; other < size(); ++other) {
      char* slice = bytes_of(whole) + static_cast<size_t>(other) * bytes;
      if (other == root && slice == bytes_of(part)) {
        continue;
      }
      move(scatter, slice, other);
      if (other == root) {
        move(!scatter, bytes_of(part), root);
      }
    }
  } else {
    move(!scatter, bytes_of(part), root);
  }
  const auto end = nccl.group_end();
  return first == NcclResult::success || first == NcclResult::in_progress ? end : first;
}

void NcclCommunicator::watch() {
  set_thread_rank(rank(), size());
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
void NcclCommunicator::look() {
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

void NcclCommunicator::fail(const std::string& operation, const std::string& cause) {
  if (failure_) {
    return;
  }
  failure_ = {operation, cause};
  for_each_group([](NcclGroup& group) { group.abort(); });
}

void NcclCommunicator::fail_late(const NcclFlight& flight, const Deadline& deadline) {
  fail(
      flight.name, "rank " + std::to_string(rank()) + " had no answer within " +
                       std::to_string(deadline.time().count()) + " ms");
}

void NcclCommunicator::throw_failure(const std::string& operation) const {
  const auto& [failed, cause] = *failure_;
  const bool another = !failed.empty() && operation != failed;
  throw std::runtime_error((another ? failed + " failed before: " : "") + cause);
}

template <typename Done>
void NcclCommunicator::poll(
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

NcclCommunicator::~NcclCommunicator() {
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

void NcclCommunicator::finish() {
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

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(
    const NcclDevice& device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, const NcclOptions& options) {
  if (size == 1) {
    return make_single_communicator();
  }
  try {
    return std::make_unique<NcclCommunicator>(
        device, std::move(store), name, rank, size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("forming the NCCL group", first_line(error));
  }
}

}  // namespace tandem
