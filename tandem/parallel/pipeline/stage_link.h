#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// A stage's messages: activations to the next stage, their gradients back, one
/// message each per micro-batch (its tag). Sends do not block, receives do.
///
/// The first message between two stages, in training and in evaluation, gives the dtype
/// and shape of one sample's activations; they stay the same, only the number of
/// samples changes.
class StageLink {
 public:
  /// `pipeline`: the stages of one pipeline; a rank in it is a stage. Outlives this.
  /// `device`: where activations and their gradients lie, on all stages alike.
  explicit StageLink(Communicator& pipeline, at::Device device = at::kCPU)
      : pipeline_(pipeline), device_(device) {}

  bool first() const {
    return pipeline_.rank() == 0;
  }
  bool last() const {
    return pipeline_.rank() + 1 == pipeline_.size();
  }

  /// The activations of `count` samples from the stage before. Not on the first.
  at::Tensor receive_activations(int64_t micro_batch, int64_t count, bool training);

  /// To the next stage; not on the last. The tensor is kept alive until its gradient
  /// has come, or finish().
  void send_activations(int64_t micro_batch, const at::Tensor& output, bool training);

  /// The gradient of what was sent, from the next stage. Not on the last.
  at::Tensor receive_gradient(int64_t micro_batch);

  /// To the stage before; not on the first.
  void send_gradient(int64_t micro_batch, const at::Tensor& gradient);

  /// Waits for all sends.
  void finish();

 private:
  struct Sending {
    at::Tensor tensor;
    WorkPtr work;
  };
  // Of one sample.
  struct SampleShape {
    bool known = false;
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> dims;
  };

  void send_shape(const at::Tensor& output);
  SampleShape receive_shape();

  Communicator& pipeline_;
  at::Device device_;
  // In evaluation, in training.
  std::array<bool, 2> shape_sent_{};
  std::array<SampleShape, 2> shape_received_;
  std::map<int64_t, Sending> activations_;
  std::deque<Sending> gradients_;
};

/// Returns at `root` the tensors of all ranks in rank order: its own tensors and copies
/// of the others. Returns `mine` at the other ranks. Collective; waits.
std::vector<NamedTensor> gather_tensors(
    Communicator& comm, std::vector<NamedTensor> mine, int root);

}  // namespace tandem
