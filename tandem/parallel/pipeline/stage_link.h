#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Sends activations to the next stage and their gradients to the previous stage. Each
/// micro-batch needs one message per direction, whose tag identifies the micro-batch.
/// Receives block; sends normally do not.
///
/// A stage first sends the dtype and shape of one sample's activations, once for
/// training and once for evaluation. Afterwards, only the number of samples may change.
class StageLink {
 public:
  /// Connects this stage with the stages before and after it. `pipeline` is the group
  /// of one pipeline, whose ranks are the stages in order. `pipeline` must outlive this
  /// object. `device` is the device of activations and their gradients on this stage.
  explicit StageLink(Communicator& pipeline, at::Device device = at::kCPU)
      : pipeline_(pipeline), device_(device) {}

  /// Returns whether this is the first stage.
  bool first() const {
    return pipeline_.rank() == 0;
  }
  /// Returns whether this is the last stage.
  bool last() const {
    return pipeline_.rank() + 1 == pipeline_.size();
  }

  /// Receives the activations of `count` samples from the previous stage. Not for the
  /// first stage.
  at::Tensor receive_activations(int64_t micro_batch, int64_t count, bool training);

  /// Sends activations to the next stage. Keeps the tensor until receive_gradient(),
  /// wait_for_activations() or finish(). Not for the last stage.
  void send_activations(int64_t micro_batch, const at::Tensor& output, bool training);

  /// Waits until the next stage has received the sent activations, whose gradient is
  /// not needed. Not for the last stage.
  void wait_for_activations(int64_t micro_batch);

  /// Receives the gradient of the sent activations from the next stage. Not for the
  /// last stage.
  at::Tensor receive_gradient(int64_t micro_batch);

  /// Sends the gradient of the received activations to the previous stage. Not for the
  /// first stage.
  void send_gradient(int64_t micro_batch, const at::Tensor& gradient);

  /// Waits for all sends.
  void finish();

 private:
  struct Sending {
    at::Tensor tensor;
    WorkPtr work;
  };
  // Dtype and shape of one sample's activations.
  struct SampleShape {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> dims;
  };

  void send_shape(const at::Tensor& output);
  SampleShape receive_shape();

  Communicator& pipeline_;
  at::Device device_;
  // Shapes that this stage has sent and received. Index 0 is for evaluation, index 1
  // for training.
  std::array<bool, 2> shape_sent_{};
  std::array<std::optional<SampleShape>, 2> shape_received_;
  std::map<int64_t, Sending> activations_;
  std::deque<Sending> gradients_;
};

/// Gathers the tensors of all ranks at rank 0. At rank 0, returns the tensors of all
/// ranks in rank order; the tensors of other ranks are copies in main memory. At other
/// ranks, returns `mine`. Collective; waits.
std::vector<NamedTensor> gather_tensors(
    Communicator& comm, std::vector<NamedTensor> mine);

}  // namespace tandem
