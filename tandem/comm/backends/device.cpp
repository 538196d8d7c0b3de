#include "tandem/comm/backends/device.h"

#include <ATen/ops/empty.h>

#include <utility>

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

at::Tensor copy_in_main_memory(const at::Tensor& tensor) {
  return tensor.defined() ? like_in_main_memory(tensor).copy_(tensor) : tensor;
}

// Work whose wait() copies the result from main memory to the device.
class CarriedWork : public Work {
 public:
  CarriedWork(WorkPtr work, at::Tensor here, at::Tensor there)
      : work_(std::move(work)), here_(std::move(here)), there_(std::move(there)) {}

  bool test() override {
    return work_->test();
  }

  void wait(std::chrono::milliseconds timeout) override {
    work_->wait(timeout);
    if (there_.defined()) {
      there_.copy_(here_);
      there_.reset();
    }
  }

  void on_end(std::function<void()> then) override {
    work_->on_end(std::move(then));
  }

 private:
  WorkPtr work_;
  at::Tensor here_;
  // Destination of the copy on the device; undefined after the copy, or if there is no
  // result.
  at::Tensor there_;
};

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
    if (auto* group = group_of(tensor)) {
      return group->all_reduce(tensor, op);
    }
    const auto here = copy_in_main_memory(tensor);
    return carried(host_->all_reduce(here, op), here, tensor);
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    if (auto* group = group_of(tensor)) {
      return group->broadcast(tensor, root);
    }
    const auto here = copy_in_main_memory(tensor);
    return carried(host_->broadcast(here, root), here, tensor);
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    if (auto* group = group_of(output)) {
      return group->reduce_scatter(output, input);
    }
    const auto part = like_in_main_memory(output);
    return carried(
        host_->reduce_scatter(part, copy_in_main_memory(input)), part, output);
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    if (auto* group = group_of(output)) {
      return group->all_gather(output, input);
    }
    const auto whole = like_in_main_memory(output);
    return carried(host_->all_gather(whole, copy_in_main_memory(input)), whole, output);
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    if (auto* group = group_of(output)) {
      return group->scatter(output, input, root);
    }
    const auto part = like_in_main_memory(output);
    return carried(
        host_->scatter(part, copy_in_main_memory(input), root), part, output);
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    if (auto* group = group_of(input)) {
      return group->gather(output, input, root);
    }
    const auto whole = output.defined() ? like_in_main_memory(output) : output;
    return carried(
        host_->gather(whole, copy_in_main_memory(input), root), whole, output);
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    if (auto* group = group_of(tensor)) {
      return group->send(tensor, peer, tag);
    }
    const auto here = copy_in_main_memory(tensor);
    return carried(host_->send(here, peer, tag), here, {});
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    if (auto* group = group_of(tensor)) {
      return group->recv(tensor, peer, tag);
    }
    const auto here = like_in_main_memory(tensor);
    return carried(host_->recv(here, peer, tag), here, tensor);
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    auto host = host_->split(color);
    return make_device_communicator(
        std::move(host), on_device_ ? on_device_->split(color) : nullptr);
  }

 private:
  // Returns the group for a tensor, or null if the tensor is copied through main
  // memory.
  Communicator* group_of(const at::Tensor& tensor) const {
    return tensor.is_cpu() ? host_.get() : on_device_.get();
  }

  [[nodiscard]] static WorkPtr carried(
      WorkPtr work, at::Tensor here, at::Tensor there) {
    return std::make_shared<CarriedWork>(
        std::move(work), std::move(here), std::move(there));
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
