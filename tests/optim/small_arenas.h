#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/optim/optimizer.h"

namespace tandem {

inline const at::ScalarType kDtypes[] = {at::kFloat, at::kDouble};
// Shapes of the parameters. No size is a multiple of 64 bytes, so there is padding
// after each tensor.
inline const std::vector<std::vector<int64_t>> kShapes = {{7, 5}, {3}, {2, 3, 13}, {}};

inline at::Tensor first_value(size_t index, at::ScalarType dtype) {
  auto value = at::empty(kShapes[index], dtype);
  const auto count = at::arange(value.numel(), at::kDouble);
  const auto phase = static_cast<double>(index);
  return value.copy_(at::sin(0.7 * count + phase).view(kShapes[index]));
}

// Returns a gradient whose size decreases with the step, so that amsgrad has an effect.
inline at::Tensor gradient_value(size_t index, int64_t step, at::ScalarType dtype) {
  auto value = at::empty(kShapes[index], dtype);
  const auto count = at::arange(value.numel(), at::kDouble);
  const auto phase = 2.0 * static_cast<double>(index) + 3.0 * static_cast<double>(step);
  return value.copy_(
      at::cos(1.3 * count + phase).view(kShapes[index]) / static_cast<double>(step));
}

// Arenas of parameters and gradients with the shapes kShapes.
struct Arenas {
  explicit Arenas(at::ScalarType dtype, const std::vector<int64_t>& groups = {})
      : layout(make_layout(dtype, groups)),
        parameters(layout, "parameters"),
        gradients(layout, "gradients") {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      parameters.view(i).copy_(first_value(i, dtype));
    }
  }

  static std::shared_ptr<const ArenaLayout> make_layout(
      at::ScalarType dtype, const std::vector<int64_t>& groups) {
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < kShapes.size(); ++i) {
      tensors.push_back({"p" + std::to_string(i), first_value(i, dtype)});
      tensors.back().tensor.set_requires_grad(true);
    }
    return std::make_shared<const ArenaLayout>(tensors, groups, 4);
  }

  void set_gradients(int64_t step, double factor = 1) {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      auto view = gradients.view(i);
      view.copy_(gradient_value(i, step, view.scalar_type()) * factor);
    }
  }

  std::shared_ptr<const ArenaLayout> layout;
  Arena parameters;
  Arena gradients;
};

inline void update_all(
    Optimizer& optimizer, const Arenas& arenas, const StepScalars& context) {
  for (const auto& range : arenas.layout->ranges()) {
    optimizer.update(range, context);
  }
}

inline OptimizerOptions named(const std::string& name) {
  OptimizerOptions options;
  options.kind = *find_choice<OptimizerKind>(name);
  return options;
}

// Returns the options of each optimizer, with weight decay and with all state arenas
// that the optimizer can have.
inline std::vector<OptimizerOptions> one_of_each() {
  std::vector<OptimizerOptions> all;
  for (const auto& entry : Choices<OptimizerKind>::rows) {
    auto options = named(entry.name);
    options.weight_decay = 0.1;
    const bool rmsprop = options.kind == OptimizerKind::rmsprop;
    options.momentum = rmsprop || options.kind == OptimizerKind::sgd ? 0.9 : 0;
    options.centered = rmsprop;
    options.amsgrad =
        options.kind == OptimizerKind::adam || options.kind == OptimizerKind::adamw;
    options.initial_accumulator_value =
        options.kind == OptimizerKind::adagrad ? 0.25 : 0;
    all.push_back(options);
  }
  return all;
}

inline bool needs_whole_tensors(const OptimizerOptions& options) {
  return row_of(options.kind).needs_whole_tensors;
}

}  // namespace tandem
