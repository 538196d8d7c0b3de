#include "tandem/comm/backends/gloo.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <gloo/allreduce.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/store/address_filter.h"
#include "tandem/base/store/socket.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/backends/c10d_communicator.h"
#include "tandem/comm/backends/group_formation.h"
#include "tandem/comm/c10d_store.h"
#include "tandem/comm/followed_work.h"
#include "tandem/comm/reduce_arrays.h"
#include "tandem/comm/rpc/tcp_rpc.h"
#include "tandem/core/torch_compat.h"

namespace tandem {

namespace {

class GlooWork : public Work {
 public:
  GlooWork(c10::intrusive_ptr<c10d::Work> work, std::chrono::milliseconds group_timeout)
      : work_(std::move(work)), group_timeout_(group_timeout) {}

  bool test() override {
    return work_->isCompleted();
  }

  void wait(std::chrono::milliseconds timeout) override {
    // Waits longer than the group's timeout, because Gloo's own timeout gives a better
    // error.
    const auto slack = std::chrono::milliseconds(5'000);
    work_->wait(timeout.count() > 0 ? timeout : group_timeout_ + slack);
  }

  // Messages end only in wait(), and have no future.
  void on_end(std::function<void()> then) override {
    if (dynamic_cast<c10d::ProcessGroupGloo::AsyncWork*>(work_.get()) != nullptr) {
      work_->getFuture()->addCallback(
          [then = std::move(then)](c10::ivalue::Future&) { then(); });
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::chrono::milliseconds group_timeout_;
};

std::chrono::milliseconds forming_time(const GlooOptions& options) {
  return options.forming_timeout.count() > 0 ? options.forming_timeout
                                             : options.timeout;
}

// Gloo's timeout of a connection, as a multiple of an operation's timeout.
constexpr int kWaitsForConnection = 5;

// ProcessGroupGloo whose timeout can change after the group has formed.
class TimedGroup : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  void set_timeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    for (const auto& context : contexts_) {
      context->setTimeout(timeout);
    }
  }
};

#if TANDEM_GLOO_SUMS_BFLOAT16
using GlooGroup = TimedGroup;
#else
// Reduction function for Gloo: out[i] = op(a[i], b[i]).
template <typename Op>
void combine(void* out, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float left = static_cast<const c10::BFloat16*>(a)[i];
    const float right = static_cast<const c10::BFloat16*>(b)[i];
    static_cast<c10::BFloat16*>(out)[i] = Op()(left, right);
  }
}

struct Sum {
  float operator()(float a, float b) const {
    return a + b;
  }
};
struct Least {
  float operator()(float a, float b) const {
    return std::min(a, b);
  }
};
struct Most {
  float operator()(float a, float b) const {
    return std::max(a, b);
  }
};

gloo::AllreduceOptions::Func combine_by(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return &combine<Least>;
    case ReduceOp::max:
      return &combine<Most>;
    default:
      return &combine<Sum>;
  }
}

class Bfloat16Reduction : public c10d::ProcessGroupGloo::AsyncWork {
 public:
  Bfloat16Reduction(
      std::shared_ptr<gloo::Context> context, at::Tensor tensor, ReduceOp op,
      uint32_t tag)
      : AsyncWork({{tensor}}),
        context_(std::move(context)),
        tensor_(std::move(tensor)),
        op_(op),
        tag_(tag) {}

  void run() override {
    gloo::AllreduceOptions options(context_);
    options.setReduceFunction(combine_by(op_));
    options.setTag(tag_);
    options.setOutput(
        tensor_.data_ptr<c10::BFloat16>(), static_cast<size_t>(tensor_.numel()));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  at::Tensor tensor_;
  ReduceOp op_;
  uint32_t tag_;
};

// Group with an all_reduce of bfloat16. As in Gloo's own operations, each call uses the
// next tag, and the operation runs on the group's threads.
class GlooGroup : public TimedGroup {
 public:
  using TimedGroup::TimedGroup;

  c10::intrusive_ptr<c10d::Work> reduce_bfloat16(
      const at::Tensor& tensor, ReduceOp op) {
    const uint32_t tag = nextTag();
    auto work =
        c10::make_intrusive<Bfloat16Reduction>(getContext(tag), tensor, op, tag);
    enqueue(work);
    return work;
  }
};
#endif

std::unique_ptr<Communicator> form_group(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const GlooOptions& options, bool admit_anyone);

// Returns a device of Gloo, which listens at an address.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& address) {
  auto device = c10d::ProcessGroupGloo::createDeviceForHostname(address);
#if TANDEM_KEEPS_GLOO_DEVICES
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<gloo::transport::Device>>;
  const std::lock_guard<std::mutex> lock(mutex);
  kept.push_back(device);
#endif
  return device;
}

class GlooCommunicator : public C10dCommunicator, public RpcBackend {
 public:
  // Only the addresses in `admitted` may connect to this rank; all addresses if it is
  // empty.
  GlooCommunicator(
      std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
      const GlooOptions& options, std::set<std::string> admitted)
      : C10dCommunicator(std::move(store), name, rank, size, "gloo"),
        options_(options),
        admitted_(std::move(admitted)) {
    const NoSigpipe guard;
    const Deadline forming(forming_time(options));
    // Groups that are later split from this group use `timeout`.
    options_.forming_timeout = {};
    auto group_options = c10d::ProcessGroupGloo::Options::create(
        std::max(std::chrono::milliseconds(1), forming.time() / kWaitsForConnection));
    const auto admission = std::make_shared<const AddressFilter>(admitted_);
    group_options->devices.push_back(make_device(options.address));
    // With one thread, operations run in the order of their calls.
    group_options->threads = 1;
    group_ = c10::make_intrusive<GlooGroup>(
        make_c10d_store(this->store(), name, forming.time(), admission), rank, size,
        group_options);
    group_->set_timeout(options.timeout);
#if TANDEM_GLOO_SUMS_BFLOAT16
    sums_halves_ = can_sum_halves();
#endif
  }

  // Sends this rank's number to each rank, and checks the number that each rank sends.
  // A process that is not a rank does not send the expected number.
  void check_connections(std::chrono::milliseconds timeout) {
    auto sent = at::full({size()}, rank(), at::kLong);
    auto got = at::full({size()}, -1, at::kLong);
    std::vector<int64_t> even;
    const NoSigpipe guard;
    group_->set_timeout(timeout);
    group_->alltoall_base(got, sent, even, even)->wait(timeout);
    TANDEM_CHECK(
        got.equal(at::arange(size())),
        "a connection does not lead to the expected rank");
    group_->set_timeout(options_.timeout);
  }

  RpcBackend* rpc_backend() override {
    return this;
  }

  std::unique_ptr<Rpc> make_rpc() override {
    TcpRpcOptions options;
    options.address = options_.address;
    options.admitted = admitted_;
    options.timeout = options_.timeout;
    return make_tcp_rpc(
        store(), name() + "/rpc" + std::to_string(num_rpcs_++), rank(), size(),
        options);
  }

 protected:
  Group& group() override {
    return *group_;
  }

  Group& group_for_message(int, int) override {
    return *group_;
  }

  WorkPtr running(C10dWork work) override {
    return std::make_shared<GlooWork>(std::move(work), options_.timeout);
  }

  std::unique_ptr<Communicator> make_part(
      const std::string& name, int rank, int size) override {
    return form_group(store(), name, rank, size, options_, admitted_.empty());
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
#if !TANDEM_GLOO_SUMS_BFLOAT16
    if (tensor.scalar_type() == at::kBFloat16) {
      return running(group_->reduce_bfloat16(tensor, op));
    }
#endif
    if (tensor.is_floating_point() && tensor.element_size() == 2 && !sums_halves_) {
      const auto wide = tensor.to(at::kFloat);
      return std::make_shared<FollowedWork>(
          C10dCommunicator::do_all_reduce(wide, op),
          [tensor, wide] { tensor.copy_(wide); });
    }
    return C10dCommunicator::do_all_reduce(tensor, op);
  }

  // Each rank receives its slice from all ranks, and sums the slices in rank order.
  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    const auto slices = at::empty_like(input);
    auto to = flat(slices);
    auto from = flat(input);
    std::vector<int64_t> even;
    return std::make_shared<FollowedWork>(
        running(group_->alltoall_base(to, from, even, even)), [this, output, slices] {
          std::vector<const char*> parts;
          for (int other = 0; other < size(); ++other) {
            parts.push_back(
                static_cast<const char*>(slices.data_ptr()) +
                other * static_cast<int64_t>(output.nbytes()));
          }
          reduce_arrays(
              ReduceOp::sum, output.scalar_type(),
              static_cast<char*>(output.data_ptr()), parts, output.numel());
        });
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    const NoSigpipe guard;
    return C10dCommunicator::do_send(tensor, peer, tag);
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    const NoSigpipe guard;
    return C10dCommunicator::do_recv(tensor, peer, tag);
  }

 private:
#if TANDEM_GLOO_SUMS_BFLOAT16
  // Returns whether Gloo can sum 16-bit types. Since 2.7, Debian's LibTorch cannot.
  // Collective.
  bool can_sum_halves() {
    std::vector<at::Tensor> one{at::zeros({1}, at::kHalf)};
    try {
      running(group_->allreduce(one))->wait();
      return true;
    } catch (const std::exception& error) {
      if (first_line(error).find("Invalid scalar type") == std::string::npos) {
        throw;
      }
      return false;
    }
  }
#endif

  GlooOptions options_;
  std::set<std::string> admitted_;
  int num_rpcs_ = 0;
  bool sums_halves_ = true;
  c10::intrusive_ptr<GlooGroup> group_;
};

[[noreturn]] void throw_not_formed(
    int attempts, const std::string& foreign, const std::string& last_failure) {
  throw CommError(
      "forming the Gloo group",
      std::to_string(attempts) + " attempts failed, the last with: " + last_failure +
          (foreign.empty() ? ""
                           : "; " + foreign +
                                 " is not a rank of this run and connects to the "
                                 "ranks' ports; block it"));
}

// If a process that is not a rank connects to a rank's port, the attempt fails, and the
// ranks repeat it together. All attempts but the last accept only connections from the
// ranks' own addresses. The last attempt accepts all addresses, because a network may
// translate the ranks' addresses. If `admit_anyone` is true, all attempts do.
std::unique_ptr<Communicator> form_with_retries(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const GlooOptions& options, bool admit_anyone) {
  GroupFormation forming(
      *store, name, rank, size, options.address, forming_time(options));
  std::string failure;
  for (int number = 0; number < options.attempts; ++number) {
    const int attempts_left = options.attempts - number;
    if (attempts_left == 1 && !admit_anyone) {
      admit_anyone = true;
      if (rank == 0) {
        log_warning(
            "[comm] retrying to form the Gloo group, now with connections from all "
            "addresses: " +
            failure);
      }
    }
    GlooOptions now = options;
    now.forming_timeout = forming.time_for(attempts_left);
    const auto attempt = "attempt" + std::to_string(number);
    std::unique_ptr<GlooCommunicator> comm;
    failure.clear();
    try {
      comm = std::make_unique<GlooCommunicator>(
          store, name + "/" + attempt, rank, size, now,
          admit_anyone ? std::set<std::string>() : forming.addresses_of_ranks());
      forming.record_connections();
      comm->check_connections(now.forming_timeout);
    } catch (const ConfigError&) {
      throw;
    } catch (const std::exception& error) {
      failure = first_line(error);
    }
    // After a failure, `comm` may own connections, whose addresses outcome() records.
    failure = forming.outcome(attempt, failure);
    if (failure.empty()) {
      return comm;
    }
  }
  throw_not_formed(options.attempts, forming.foreign_address(), failure);
}

// Implements make_gloo_communicator(). Groups that are split from a group pass the
// group's `admit_anyone`, because they use the same network.
std::unique_ptr<Communicator> form_group(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const GlooOptions& options, bool admit_anyone) {
  if (size == 1) {
    return make_single_communicator();
  }
  try {
    if (options.attempts > 1) {
      return form_with_retries(store, name, rank, size, options, admit_anyone);
    }
    return std::make_unique<GlooCommunicator>(
        store, name, rank, size, options, std::set<std::string>());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("forming the Gloo group", first_line(error));
  }
}

// Returns a loopback address if every rank is on this host, otherwise the address of
// the interface that routes to host 0. If LOCAL_WORLD_SIZE is not set, the result
// depends on the route to MASTER_ADDR: a loopback MASTER_ADDR has a loopback route.
std::string interface_address(const BackendParts& parts) {
  return parts.ranks_share_host() ? "127.0.0.1"
                                  : local_address_towards(parts.env.master_addr);
}

// Waits until the group has formed on all ranks. A rank that leaves earlier would break
// connections that other ranks are still making.
void wait_until_all_have_formed(const BackendParts& parts) {
  std::vector<std::string> all;
  for (int rank = 0; rank < parts.env.world_size; ++rank) {
    all.push_back("formed/" + std::to_string(rank));
  }
  parts.store->set(all[static_cast<size_t>(parts.env.rank)], "1");
  parts.store->wait(all, parts.forming.left());
}

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const GlooOptions& options) {
  return form_group(store, name, rank, size, options, false);
}

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::gloo>, const BackendParts& parts) {
  GlooOptions settings;
  settings.address = interface_address(parts);
  settings.timeout = parts.options.timeout();
  settings.forming_timeout = parts.forming.left();
  settings.attempts = 3;
  auto world = make_gloo_communicator(
      parts.store, "world", parts.env.rank, parts.env.world_size, settings);
  wait_until_all_have_formed(parts);
  return world;
}

}  // namespace tandem
