#include "tandem/comm/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>
#include <ctime>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/comm/c10d_store.h"

namespace tandem {

namespace {

// Gloo writes to sockets that a peer may have closed, and the SIGPIPE of that
// would end the process. While one of these lives this thread gets none, nor do,
// ever, the threads it starts; it then takes the one that may have come.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 0) {
      const timespec now{};
      sigtimedwait(&pipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

class GlooWork : public Work {
 public:
  GlooWork(c10::intrusive_ptr<c10d::Work> work, std::chrono::milliseconds group_timeout)
      : work_(std::move(work)), group_timeout_(group_timeout) {}

  bool test() override {
    return work_->isCompleted();
  }

  void wait(std::chrono::milliseconds timeout) override {
    // Gloo itself ends an operation at the group's timeout, with a better error.
    const auto slack = std::chrono::milliseconds(5'000);
    work_->wait(timeout.count() > 0 ? timeout : group_timeout_ + slack);
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::chrono::milliseconds group_timeout_;
};

// Does something with an operation's result once it has ended.
class FollowedWork : public Work {
 public:
  FollowedWork(WorkPtr work, std::function<void()> then)
      : work_(std::move(work)), then_(std::move(then)) {}

  bool test() override {
    return work_->test();
  }
  void wait(std::chrono::milliseconds timeout) override {
    work_->wait(timeout);
    if (then_) {
      then_();
      then_ = nullptr;
    }
  }

 private:
  WorkPtr work_;
  std::function<void()> then_;
};

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

// What Gloo moves but does not know: bool and bfloat16 as plain bytes.
at::Tensor movable(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
      return tensor.view(at::kByte);
    case at::kBFloat16:
      return tensor.view(at::kHalf);
    default:
      return tensor;
  }
}

std::vector<at::Tensor> slices(const at::Tensor& whole, int count) {
  std::vector<at::Tensor> parts;
  const auto flat = movable(whole).view(-1);
  const auto size = flat.numel() / count;
  for (int i = 0; i < count; ++i) {
    parts.push_back(flat.narrow(0, i * size, size));
  }
  return parts;
}

at::Tensor flat(const at::Tensor& tensor) {
  return movable(tensor).view(-1);
}

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(
      std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
      const GlooOptions& options)
      : Communicator(rank, size, "gloo"),
        store_(std::move(store)),
        name_(name),
        options_(options) {
    const NoSigpipe guard;
    auto group_options = c10d::ProcessGroupGloo::Options::create(options.timeout);
    group_options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    group_options->threads = options.threads;
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        make_c10d_store(store_, name_, options.timeout), rank, size, group_options);
  }

  std::unique_ptr<Communicator> split(int color) override {
    const Place place = place_in_split(color);
    const auto name =
        name_ + "/split" + std::to_string(num_splits_++) + "." + std::to_string(color);
    return make_gloo_communicator(store_, name, place.rank, place.size, options_);
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    auto wide = tensor;
    std::function<void()> then;
    if (tensor.scalar_type() == at::kBFloat16) {
      wide = tensor.to(at::kFloat);
      then = [tensor, wide] { tensor.copy_(wide); };
    } else if (tensor.scalar_type() == at::kBool) {
      wide = tensor.view(at::kByte);
    }
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    std::vector<at::Tensor> tensors{wide};
    return running(group_->allreduce(tensors, options), then);
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{movable(tensor)};
    return running(group_->broadcast(tensors, options));
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    const auto sum = input.clone();
    const auto work = do_all_reduce(sum, ReduceOp::sum);
    return std::make_shared<FollowedWork>(work, [this, output, sum] {
      const auto size = output.numel();
      output.view(-1).copy_(sum.view(-1).narrow(0, rank() * size, size));
    });
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    std::vector<std::vector<at::Tensor>> outputs{slices(output, size())};
    std::vector<at::Tensor> inputs{flat(input)};
    return running(group_->allgather(outputs, inputs));
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    c10d::ScatterOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> outputs{flat(output)};
    std::vector<std::vector<at::Tensor>> inputs;
    if (rank() == root) {
      inputs.push_back(slices(input, size()));
    }
    return running(group_->scatter(outputs, inputs, options));
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    c10d::GatherOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> inputs{flat(input)};
    std::vector<std::vector<at::Tensor>> outputs;
    if (rank() == root) {
      outputs.push_back(slices(output, size()));
    }
    return running(group_->gather(outputs, inputs, options));
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    std::vector<at::Tensor> tensors{movable(tensor)};
    const NoSigpipe guard;
    return running(group_->send(tensors, peer, tag));
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    std::vector<at::Tensor> tensors{movable(tensor)};
    const NoSigpipe guard;
    return running(group_->recv(tensors, peer, tag));
  }

 private:
  WorkPtr running(
      c10::intrusive_ptr<c10d::Work> work, std::function<void()> then = {}) const {
    WorkPtr running = std::make_shared<GlooWork>(std::move(work), options_.timeout);
    if (!then) {
      return running;
    }
    return std::make_shared<FollowedWork>(std::move(running), std::move(then));
  }

  std::shared_ptr<StoreClient> store_;
  std::string name_;
  GlooOptions options_;
  int num_splits_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(
    std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
    const GlooOptions& options) {
  if (size == 1) {
    return make_single_communicator();
  }
  try {
    return std::make_unique<GlooCommunicator>(
        std::move(store), name, rank, size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("forming the Gloo group", first_line(error));
  }
}

}  // namespace tandem
