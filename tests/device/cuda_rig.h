#pragma once

// The executor of kernels for GPUs on a device in main memory, beside autograd.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tandem/exec/device/cuda_executor.h"
#include "tests/device/far_device.h"

namespace tandem {

inline ModelArenaOptions placed(bool far) {
  ModelArenaOptions options;
  if (far) {
    options.placement = far_placement();
  }
  return options;
}

// Notes each report, and what the gradient was then.
class Recorder : public GradientSink {
 public:
  explicit Recorder(Arena& gradients) : gradients_(gradients) {}

  void gradient_ready(size_t slot) override {
    slots.push_back(slot);
    values.push_back(gradients_.view(slot).cpu().clone());
  }
  bool all_were_final() const {
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!values[i].equal(gradients_.view(slots[i]).cpu())) {
        return false;
      }
    }
    return true;
  }

  std::vector<size_t> slots;
  std::vector<at::Tensor> values;

 private:
  Arena& gradients_;
};

// A model on arenas with its executor: kernels on the device, or eager in main memory.
struct Rig {
  std::unique_ptr<Model> model;
  ModelArenas arenas;
  Recorder sink;
  std::unique_ptr<StageExecutor> executor;

  Rig(std::unique_ptr<Model> from, bool far, const StageOptions& options)
      : model(std::move(from)),
        arenas(model->parameters(), model->buffers(), placed(far)),
        sink(arenas.gradients()),
        executor(
            far ? make_cuda_executor(
                      *model, arenas, options, [] { return cuda::Stream(); })
                : make_eager_executor(*model, arenas, options)) {}

  StepSums step(const Batch& batch, const StepContext& context) {
    const auto sums = executor->forward(0, batch, context).sums;
    executor->backward(0, {}, context, sink);
    return sums;
  }
};

// The layers of a model of model/zoo.cpp, with fewer channels and values.
struct Case {
  const char* name;
  std::vector<Layer> layers;
  InputShape input;
  LossKind loss;
};

inline void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

inline const std::vector<Case> kModels = {
    {"net",
     {conv2d("conv1", 1, 3, 3), relu(), conv2d("conv2", 3, 5, 3), relu(), max_pool2d(2),
      dropout(0.25), flatten(), linear("fc1", 80, 24), relu(), dropout(0.5),
      linear("fc2", 24, 10), log_softmax()},
     {1, 12, 13},
     LossKind::nll},
    {"convnet",
     {conv2d("cn1", 1, 3, 3), relu(), conv2d("cn2", 3, 4, 3), relu(), max_pool2d(2),
      dropout2d(0.3), flatten(), linear("fc1", 64, 12), relu(), dropout2d(0.25),
      linear("fc2", 12, 10), log_softmax()},
     {1, 12, 12},
     LossKind::cross_entropy},
    {"net5x5",
     {conv2d("conv1", 1, 4, 5), max_pool2d(2), relu(), conv2d("conv2", 4, 6, 5),
      dropout2d(0.4), max_pool2d(2), relu(), max_pool2d(2), flatten(),
      linear("fc1", 6, 12), relu(), linear("fc2", 12, 10)},
     {1, 20, 20},
     LossKind::softmax_cross_entropy},
    {"simplenet", {flatten(), linear("fc", 147, 10)}, {3, 7, 7}, LossKind::mse},
    {"mymodel",
     {conv2d("conv1", 1, 3, 3), relu(), max_pool2d(2), conv2d("conv2", 3, 4, 3), relu(),
      max_pool2d(2), flatten(), linear("fc1", 16, 12), relu(), linear("fc2", 12, 10)},
     {1, 14, 14},
     LossKind::cross_entropy},
    {"convnet_bn",
     {conv2d("layer1.0", 2, 3, 5, 2), batch_norm2d("layer1.1", 3), relu(),
      max_pool2d(2), conv2d("layer2.0", 3, 4, 5, 2), batch_norm2d("layer2.1", 4),
      relu(), max_pool2d(2), flatten(), linear("fc", 16, 10)},
     {2, 9, 9},
     LossKind::cross_entropy},
    // ReLUs behind a batch norm and a pool that has one, dropout behind other layers.
    {"others",
     {conv2d("conv1", 1, 4, 2, 1), relu(), dropout(0.3), batch_norm2d("bn", 4), relu(),
      dropout2d(0.2), conv2d("conv2", 4, 3, 1), relu(), max_pool2d(2), relu(),
      flatten(), dropout(0.2), linear("fc", 48, 10)},
     {1, 7, 8},
     LossKind::mse}};

inline Batch batch_of(const Case& of, int64_t first, int64_t count) {
  Batch batch;
  const auto& shape = of.input;
  const int64_t pixels = count * shape.channels * shape.height * shape.width;
  batch.inputs = (at::linspace(0, 900, pixels) + static_cast<double>(first))
                     .sin()
                     .view({count, shape.channels, shape.height, shape.width});
  batch.targets = of.loss == LossKind::mse
                      ? at::linspace(-1, 1, 10 * count).view({count, 10}).cos()
                      : at::arange(first, first + count).remainder(10);
  batch.first_position = first;
  batch.position_stride = 3;
  batch.global_count = count;
  return batch;
}

inline StepContext context_of(bool training) {
  StepContext context;
  context.seed = 0x123456789abcdef0;
  context.epoch = 2;
  context.loss_weight = 1.0 / 7;
  context.training = training;
  return context;
}

struct Arithmetic {
  const char* name;
  at::ScalarType dtype;
  Precision precision;
  // Of the largest value.
  double tolerance;
};
inline constexpr Arithmetic kFp64{"fp64", at::kDouble, Precision::fp64, 1e-12};
inline constexpr Arithmetic kFp32{"fp32", at::kFloat, Precision::fp32, 1e-5};

inline std::unique_ptr<Model> model_of(const Case& of, at::ScalarType dtype) {
  ModelOptions options;
  options.dtype = dtype;
  options.seed = 3;
  return make_layered_model(of.layers, options);
}

// The two of one model.
struct Pair {
  double tolerance;
  Rig cuda;
  Rig eager;

  Pair(const Case& of, const Arithmetic& arithmetic)
      : tolerance(arithmetic.tolerance),
        cuda(model_of(of, arithmetic.dtype), true, options(of, arithmetic.precision)),
        eager(model_of(of, arithmetic.dtype), false, options(of, Precision::fp32)) {}

  static StageOptions options(const Case& of, Precision precision) {
    StageOptions options;
    options.loss.kind = of.loss;
    options.precision = precision;
    return options;
  }

  template <typename Steps>
  void each(const Steps& steps) {
    steps(cuda);
    steps(eager);
  }

  void expect_close(
      const at::Tensor& found, const at::Tensor& expected, const std::string& what,
      double least_scale = 0) const {
    const double largest = std::max(expected.abs().max().item<double>(), least_scale);
    EXPECT_GT(largest, 0) << what;
    const double apart = (found.cpu() - expected).abs().max().item<double>();
    EXPECT_LE(apart, tolerance * largest) << what;
  }

  // Correct samples and samples are counts.
  void expect_sums(const StepSums& found, const StepSums& expected) const {
    const auto expected_loss = expected.values().loss;
    EXPECT_NEAR(
        found.values().loss, expected_loss, tolerance * std::abs(expected_loss));
    EXPECT_EQ(found.values().correct, expected.values().correct);
    EXPECT_EQ(found.values().samples, expected.values().samples);
  }

  void expect_same_state() {
    const auto& slots = eager.arenas.gradients().layout().slots();
    // The bias before a batch norm has a gradient of nothing but rounding.
    const double some = eager.arenas.gradients().segment(0).abs().max().item<double>();
    for (size_t i = 0; i < slots.size(); ++i) {
      expect_close(
          cuda.arenas.gradients().view(i), eager.arenas.gradients().view(i),
          "gradient of " + slots[i].name, some);
    }
    const auto& buffers = eager.arenas.buffers().layout().slots();
    for (size_t i = 0; i < buffers.size(); ++i) {
      expect_close(
          cuda.arenas.buffers().view(i), eager.arenas.buffers().view(i),
          buffers[i].name);
    }
  }
};

}  // namespace tandem
