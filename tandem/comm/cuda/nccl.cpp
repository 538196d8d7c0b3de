#include "tandem/comm/cuda/nccl.h"

#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <deque>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/comm/backends/device.h"
#include "tandem/comm/c10d_store.h"

namespace tandem {

namespace {

using Group = c10d::TANDEM_C10D_GROUP;
using C10dWork = c10::intrusive_ptr<c10d::Work>;

void rethrow(c10d::Work& work) {
  if (work.isCompleted() && work.exception()) {
    std::rethrow_exception(work.exception());
  }
}

class NcclWork : public Work {
 public:
  NcclWork(C10dWork work, std::chrono::milliseconds group_timeout)
      : work_(std::move(work)), group_timeout_(group_timeout) {}

  bool test() override {
    return work_->isCompleted();
  }

  void wait(std::chrono::milliseconds timeout) override {
    if (timeout.count() > 0) {
      wait_until_done(timeout);
    } else {
      rethrow(*work_);
      work_->wait();
    }
  }

  void wait_on_host() override {
    // Waits longer than the group's timeout, because the watchdog's own timeout gives a
    // better error.
    wait_until_done(group_timeout_ + std::chrono::seconds(30));
  }

 private:
  void wait_until_done(std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    while (!work_->isCompleted()) {
      if (deadline.passed()) {
        throw CommError("", fmt::format("not done after {} ms", timeout.count()));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    rethrow(*work_);
    work_->wait();
  }

  C10dWork work_;
  std::chrono::milliseconds group_timeout_;
};

// Views bool as bytes, because NCCL cannot add bool.
at::Tensor movable(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

std::vector<at::Tensor> parts_of(const at::Tensor& whole, int count) {
  return movable(whole).view(-1).chunk(count);
}

c10d::ReduceOp::RedOpType to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    default:
      return c10d::ReduceOp::SUM;
  }
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(
      const CudaLibrary& cuda, at::Device device, std::shared_ptr<StoreClient> store,
      std::string name, int rank, int size, std::chrono::milliseconds timeout)
      : Communicator(rank, size, "nccl"),
        cuda_(cuda),
        device_(device),
        store_(std::move(store)),
        name_(std::move(name)),
        timeout_(timeout),
        group_(make_group("all")),
        to_higher_(make_group("to higher ranks")),
        to_lower_(make_group("to lower ranks")) {}

  at::Device device() const override {
    return device_;
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    check_earlier();
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    std::vector<at::Tensor> tensors{movable(tensor)};
    return running(group_->allreduce(tensors, options));
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    check_earlier();
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{movable(tensor)};
    return running(group_->broadcast(tensors, options));
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    check_earlier();
    auto out = output.view(-1);
    auto in = input.view(-1);
    return running(group_->_reduce_scatter_base(out, in));
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    check_earlier();
    auto out = movable(output).view(-1);
    auto in = movable(input).view(-1);
    return running(group_->_allgather_base(out, in));
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    check_earlier();
    c10d::ScatterOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> outputs{movable(output).view(-1)};
    std::vector<std::vector<at::Tensor>> inputs;
    if (rank() == root) {
      inputs.push_back(parts_of(input, size()));
    }
    return running(group_->scatter(outputs, inputs, options));
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    check_earlier();
    c10d::GatherOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> inputs{movable(input).view(-1)};
    std::vector<std::vector<at::Tensor>> outputs;
    if (rank() == root) {
      outputs.push_back(parts_of(output, size()));
    }
    return running(group_->gather(outputs, inputs, options));
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    check_earlier();
    std::vector<at::Tensor> tensors{movable(tensor)};
    Group& group = peer > rank() ? *to_higher_ : *to_lower_;
    return running(group.send(tensors, peer, tag));
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    check_earlier();
    std::vector<at::Tensor> tensors{movable(tensor)};
    Group& group = peer < rank() ? *to_higher_ : *to_lower_;
    return running(group.recv(tensors, peer, tag));
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    const SplitRank place = rank_in_split(color);
    const auto name =
        name_ + "/split" + std::to_string(num_splits_++) + "." + std::to_string(color);
    return make_nccl_communicator(
        cuda_, device_, store_, name, place.rank, place.size, timeout_);
  }

 private:
  c10::intrusive_ptr<Group> make_group(const std::string& purpose) const {
    return cuda_.make_nccl(
        make_c10d_store(store_, name_ + "/" + purpose, timeout_, {}), rank(), size(),
        timeout_);
  }

  // Throws the error of an operation that failed since the last call.
  void check_earlier() {
    while (!earlier_.empty() && earlier_.front()->isCompleted()) {
      const C10dWork work = earlier_.front();
      earlier_.pop_front();
      rethrow(*work);
    }
  }

  [[nodiscard]] WorkPtr running(C10dWork work) {
    earlier_.push_back(work);
    return std::make_shared<NcclWork>(std::move(work), timeout_);
  }

  const CudaLibrary& cuda_;
  at::Device device_;
  std::shared_ptr<StoreClient> store_;
  std::string name_;
  std::chrono::milliseconds timeout_;
  int num_splits_ = 0;
  c10::intrusive_ptr<Group> group_;
  // Groups for messages to higher and to lower ranks. The messages of a group between
  // two ranks share a stream. With one group for both directions, two ranks that send
  // to each other would wait for each other.
  c10::intrusive_ptr<Group> to_higher_;
  c10::intrusive_ptr<Group> to_lower_;
  // Operations for which this object has not yet checked whether they succeeded.
  std::deque<C10dWork> earlier_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(
    const CudaLibrary& cuda, at::Device device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, std::chrono::milliseconds timeout) {
  if (size == 1) {
    return make_single_communicator();
  }
  try {
    return std::make_unique<NcclCommunicator>(
        cuda, device, std::move(store), name, rank, size, timeout);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("forming the NCCL group", first_line(error));
  }
}

std::unique_ptr<Communicator> make_cuda_communicator(
    const CudaLibrary& cuda, std::unique_ptr<Communicator> host,
    const std::shared_ptr<StoreClient>& store, const Placement& placement,
    const CommOptions& options) {
  if (host->size() == 1) {
    return make_device_communicator(std::move(host));
  }
  const at::Device device = *placement.device;
  const std::string missing =
      store == nullptr ? "the ranks have no rendezvous store" : "";
  const std::string obstacle = nccl_obstacle(
      *host, host_identity() + " " + cuda.bus_id(device.index()), missing);
  if (obstacle.empty()) {
    const int rank = host->rank();
    const int size = host->size();
    return make_device_communicator(
        std::move(host),
        make_nccl_communicator(
            cuda, device, store, "nccl", rank, size, options.timeout()));
  }
  if (options.backend == BackendKind::nccl) {
    throw ConfigError(
        "[comm] backend nccl is not possible: " + obstacle +
        "; start one rank for each GPU, or use --backend auto");
  }
  if (host->rank() == 0) {
    log_info("[comm] GPUs communicate through main memory: " + obstacle);
  }
  return make_device_communicator(std::move(host));
}

std::string nccl_obstacle(
    Communicator& host, const std::string& device, const std::string& missing) {
  const auto devices = host.stack_digests(device, "devices");
  const auto have = host.stack(at::full({1}, missing.empty(), at::kBool), "NCCL");
  for (int rank = 0; rank < host.size(); ++rank) {
    if (!have[rank].item<bool>()) {
      return host.broadcast_text(missing, rank, "NCCL");
    }
    for (int other = 0; other < rank; ++other) {
      if (devices[rank].equal(devices[other])) {
        return fmt::format("ranks {} and {} share a device", other, rank);
      }
    }
  }
  return "";
}

}  // namespace tandem
