#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/exec/stage_executor.h"
#include "tests/exec/threads.h"

namespace tandem {

inline at::Tensor waves(double phase, const std::vector<int64_t>& dims) {
  const int64_t count = c10::multiply_integers(dims);
  return (at::linspace(0, 5, count, at::kDouble) + phase).sin().view(dims);
}

inline at::Tensor parameter(double phase, const std::vector<int64_t>& dims) {
  return waves(phase, dims).set_requires_grad(true);
}

// A sink that records the name and the value of each gradient when it is reported.
class Recorder : public GradientSink {
 public:
  explicit Recorder(Arena& gradients) : gradients_(gradients) {}

  void gradient_ready(size_t slot) override {
    names_.push_back(gradients_.layout().slots()[slot].name);
    values_.push_back(gradients_.view(slot).clone());
    slots_.push_back(slot);
  }

  const std::vector<std::string>& names() const {
    return names_;
  }
  const std::vector<size_t>& slots() const {
    return slots_;
  }
  // Returns whether all gradients still have the values that they had when they were
  // reported.
  bool all_were_final() const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!values_[i].equal(gradients_.view(slots_[i]))) {
        return false;
      }
    }
    return true;
  }

 private:
  Arena& gradients_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> values_;
  std::vector<size_t> slots_;
};

using MakeExecutor =
    std::unique_ptr<StageExecutor> (*)(Model&, ModelArenas&, const StageOptions&);

// A model with its arenas, an executor and a Recorder.
struct Rig {
  std::unique_ptr<Model> model;
  ModelArenas arenas;
  Recorder recorder;
  std::unique_ptr<StageExecutor> executor;

  Rig(std::unique_ptr<Model> from, MakeExecutor make, const StageOptions& options = {})
      : model(std::move(from)),
        arenas(model->parameters(), model->buffers()),
        recorder(arenas.gradients()),
        executor(make(*model, arenas, options)) {}
  // Makes an eager executor.
  explicit Rig(std::unique_ptr<Model> from, const StageOptions& options = {})
      : Rig(std::move(from), &make_eager_executor, options) {}

  at::Tensor step(const Batch& batch, const StepContext& context) {
    const auto sums = executor->forward(0, batch, context).sums.tensor();
    executor->backward(0, {}, context, recorder);
    return sums;
  }
};

// Returns images of `shape` for a model with 10 outputs. The values do not depend on
// the number of threads.
inline Batch image_batch(
    const std::vector<int64_t>& shape, int64_t first, int64_t count) {
  const Threads one(1);
  Batch batch;
  const int64_t pixels = count * shape[0] * shape[1] * shape[2];
  batch.inputs = (at::linspace(0, 900, pixels) + static_cast<double>(first))
                     .sin()
                     .view({count, shape[0], shape[1], shape[2]});
  batch.targets = at::arange(first, first + count).remainder(10);
  batch.first_position = first;
  batch.global_count = count;
  return batch;
}

inline std::unique_ptr<Model> small_net() {
  ModelOptions options;
  options.input = {1, 8, 8};
  options.seed = 3;
  options.dtype = at::kDouble;
  return make_layered_model(
      {conv2d("conv", 1, 3, 3), relu(), max_pool2d(2), dropout(0.3), flatten(),
       linear("fc", 27, 4)},
      options);
}

inline Batch images(int64_t first, int64_t count) {
  Batch batch;
  batch.inputs = waves(static_cast<double>(first), {count, 1, 8, 8}).to(at::kFloat);
  batch.targets = at::arange(first, first + count).remainder(4);
  batch.first_position = first;
  batch.position_stride = 2;
  batch.global_count = count;
  return batch;
}

inline StepContext training(double loss_weight = 1) {
  StepContext context;
  context.seed = 11;
  context.epoch = 2;
  context.loss_weight = loss_weight;
  return context;
}

// Returns the gradients that autograd computes without an executor, in order of
// registration.
inline std::vector<at::Tensor> plain_gradients(const Batch& batch, double weight) {
  const auto model = small_net();
  ForwardContext context;
  context.samples = {11, 2, batch.first_position, batch.position_stride};
  const auto output = model->forward(batch.inputs.to(at::kDouble), context);
  (summed_loss({LossKind::cross_entropy}, output, batch.targets) * weight).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& entry : model->parameters()) {
    gradients.push_back(entry.tensor.grad());
  }
  return gradients;
}

inline void expect_gradients(const Rig& rig, const std::vector<at::Tensor>& expected) {
  const auto own = rig.model->parameters();
  ASSERT_EQ(own.size(), expected.size());
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_GT(expected[i].abs().max().item<double>(), 0) << own[i].name;
    EXPECT_TRUE(own[i].tensor.grad().allclose(expected[i], 1e-13, 1e-15))
        << own[i].name;
  }
}

}  // namespace tandem
