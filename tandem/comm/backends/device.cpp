#include "tandem/comm/backends/device.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "tandem/comm/followed_work.h"

namespace tandem {

namespace {

// Returns a tensor in main memory for a copy from or to the device. The memory is
// pinned if the device is a CUDA GPU, because copies are then faster.
at::Tensor like_in_main_memory(const at::Tensor& tensor) {
  return at::empty(
      tensor.sizes(), at::TensorOptions(tensor.scalar_type())
                          .device(at::kCPU)
                          .pinned_memory(tensor.is_cuda()));
}

bool is_in_main_memory(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_cpu();
}

class DeviceCommunicator : public Communicator {
 public:
  DeviceCommunicator(
      std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> on_device)
      : Communicator(
            host->rank(), host->size(),
            on_device ? on_device->backend() : host->backend()),
        host_(std::move(host)),
        on_device_(std::move(on_device)) {}

  bool takes(at::Device device) const override {
    return device.is_cpu() || on_device_ == nullptr || on_device_->takes(device);
  }

  Communicator& host_group() override {
    return host_->host_group();
  }

  at::Tensor make_buffer(int64_t numel, at::ScalarType dtype) override {
    return host_->make_buffer(numel, dtype);
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    return start(tensor, tensor, [=](Communicator& group, auto& to, auto&) {
      return group.all_reduce(to, op);
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return start(tensor, tensor, [=](Communicator& group, auto& to, auto&) {
      return group.broadcast(to, root);
    });
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    return start(output, input, [](Communicator& group, auto& to, auto& from) {
      return group.reduce_scatter(to, from);
    });
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    return start(output, input, [](Communicator& group, auto& to, auto& from) {
      return group.all_gather(to, from);
    });
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    return start(output, input, [=](Communicator& group, auto& to, auto& from) {
      return group.scatter(to, from, root);
    });
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    return start(output, input, [=](Communicator& group, auto& to, auto& from) {
      return group.gather(to, from, root);
    });
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    return start({}, tensor, [=](Communicator& group, auto&, auto& from) {
      return group.send(from, peer, tag);
    });
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    return start(tensor, {}, [=](Communicator& group, auto& to, auto&) {
      return group.recv(to, peer, tag);
    });
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    auto host = host_->split(color);
    return make_device_communicator(
        std::move(host), on_device_ ? on_device_->split(color) : nullptr);
  }

 private:
  // Calls `operation` with a group and the tensors. If the group for devices is
  // missing, passes copies in main memory; wait() then copies the result to `output`.
  // `output` and `input` may be undefined, or the same tensor.
  template <typename Operation>
  [[nodiscard]] WorkPtr start(
      const at::Tensor& output, const at::Tensor& input, const Operation& operation) {
    if (is_in_main_memory(output) && is_in_main_memory(input)) {
      return operation(*host_, output, input);
    }
    if (on_device_ != nullptr) {
      return operation(*on_device_, output, input);
    }
    at::Tensor from;
    at::Tensor to;
    if (input.defined()) {
      from = like_in_main_memory(input).copy_(input);
    }
    if (output.defined()) {
      to = output.is_same(input) ? from : like_in_main_memory(output);
    }
    // The function also keeps `from` alive.
    return std::make_shared<FollowedWork>(
        operation(*host_, to, from), [output, to, from] {
          if (output.defined()) {
            output.copy_(to);
          }
        });
  }

  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> on_device_;
};

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(
    std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> on_device) {
  return std::make_unique<DeviceCommunicator>(std::move(host), std::move(on_device));
}

}  // namespace tandem
