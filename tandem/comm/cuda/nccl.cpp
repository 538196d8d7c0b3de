#include "tandem/comm/cuda/nccl.h"

#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <deque>
#include <thread>
#include <utility>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/comm/backends/c10d_communicator.h"
#include "tandem/comm/backends/device.h"
#include "tandem/comm/c10d_store.h"

namespace tandem {

namespace {

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

class NcclCommunicator : public C10dCommunicator {
 public:
  NcclCommunicator(
      const CudaLibrary& cuda, at::Device device, std::shared_ptr<StoreClient> store,
      const std::string& name, int rank, int size, std::chrono::milliseconds timeout)
      : C10dCommunicator(std::move(store), name, rank, size, "nccl"),
        cuda_(cuda),
        device_(device),
        timeout_(timeout),
        group_(make_group("all")),
        to_higher_(make_group("to higher ranks")),
        to_lower_(make_group("to lower ranks")) {}

  at::Device device() const override {
    return device_;
  }

 protected:
  Group& group() override {
    check_earlier();
    return *group_;
  }

  Group& group_for_message(int from, int to) override {
    check_earlier();
    return from < to ? *to_higher_ : *to_lower_;
  }

  WorkPtr running(C10dWork work) override {
    earlier_.push_back(work);
    return std::make_shared<NcclWork>(std::move(work), timeout_);
  }

  std::unique_ptr<Communicator> make_part(
      const std::string& name, int rank, int size) override {
    return make_nccl_communicator(cuda_, device_, store(), name, rank, size, timeout_);
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    auto out = output.view(-1);
    auto in = input.view(-1);
    return running(group()._reduce_scatter_base(out, in));
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    auto out = flat(output);
    auto in = flat(input);
    return running(group()._allgather_base(out, in));
  }

 private:
  c10::intrusive_ptr<Group> make_group(const std::string& purpose) const {
    return cuda_.make_nccl(
        make_c10d_store(store(), name() + "/" + purpose, timeout_, {}), rank(), size(),
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

  const CudaLibrary& cuda_;
  at::Device device_;
  std::chrono::milliseconds timeout_;
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
