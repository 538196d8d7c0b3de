#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/config/options/optimizer_options.h"

namespace tandem {

/// Settings of one optimizer step for one parameter group.
struct GroupContext {
  double lr = 0;
  double weight_decay = 0;
  double gradient_scale = 1;
  // Number of the optimizer step, from 1, without skipped steps.
  int64_t step = 1;
};

/// Largest number of states of an optimizer.
constexpr size_t kMaxStates = 3;

/// Parameters in main memory with their gradients and states: arrays of `count` floats
/// or doubles, which do not overlap.
struct Elements {
  at::ScalarType dtype = at::kFloat;
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  std::array<void*, kMaxStates> states = {};
};

/// Parameters with their gradients and states, in the order of
/// Algorithm::state_names(). An undefined tensor is a state that the parameter does not
/// have.
struct UpdateTensors {
  at::Tensor param;
  at::Tensor grad;
  std::vector<at::Tensor> states;
};

/// Update rule of one kind of optimizer. It has no parameters and no state, which are
/// in the arenas of the trainer (fused_optimizer.h) or in an optimizer for your own
/// loop (torch_optim.h).
///
/// The source file of a kind defines make_algorithm(KindTag<kind>, const
/// OptimizerOptions&). Several threads may update disjoint parameters concurrently.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  /// Returns PyTorch's names of the states, such as "exp_avg".
  const std::vector<std::string>& state_names() const {
    return state_names_;
  }

  /// Returns the shape of a state for a parameter of shape `dims`; nullopt if the
  /// parameter does not have the state.
  virtual std::optional<std::vector<int64_t>> state_dims(
      size_t /*state*/, const std::vector<int64_t>& dims) const {
    return dims;
  }

  /// Returns the value of all states before the first step.
  virtual double initial_state() const {
    return 0;
  }

  /// Updates parameters in one pass. Only for kinds that do not need whole tensors. The
  /// division of parameters into calls does not change the bits of the result.
  virtual void update_elements(const Elements& elements, const GroupContext& context);

  /// Updates parameters with LibTorch's operators, on any device. If the kind needs
  /// whole tensors, `tensors` is one parameter in its shape. Otherwise the shape does
  /// not matter, and the result differs from update_elements() only in the last bits.
  virtual void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) = 0;

 protected:
  Algorithm(const OptimizerOptions& options, std::vector<std::string> state_names)
      : options_(options), state_names_(std::move(state_names)) {}

  // All settings are set.
  const OptimizerOptions options_;

 private:
  std::vector<std::string> state_names_;
};

/// Returns options in which each unset setting has the optimizer's default.
[[nodiscard]] OptimizerOptions with_defaults(OptimizerOptions options);

/// Returns the algorithm that options.kind selects. All settings of `options` are set.
/// Throws ConfigError if a value is out of range.
[[nodiscard]] std::unique_ptr<Algorithm> make_algorithm(
    const OptimizerOptions& options);

/// Returns the arrays of float32 or float64 tensors in main memory; nullopt for other
/// tensors, and unless all tensors have the same layout without gaps.
std::optional<Elements> elements_of(const UpdateTensors& tensors);

/// Calls `update` for parts of the elements, in several threads.
void update_in_threads(
    const Elements& elements, const std::function<void(const Elements& part)>& update);

/// Updates one parameter: in one pass if it is in main memory and its tensors have the
/// same dense layout, otherwise with LibTorch's operators.
void update_parameter(
    Algorithm& algorithm, bool needs_whole_tensors, const UpdateTensors& tensors,
    const GroupContext& context);

/// Returns gradient_scale * grad + weight_decay * param, computed with LibTorch's
/// operators, as a new tensor.
at::Tensor decayed_gradient(
    const at::Tensor& grad, const at::Tensor& param, double gradient_scale,
    double weight_decay);

/// Returns the 2-norm of a tensor as a float64 scalar tensor on its device. In main
/// memory, the number of threads does not change the bits.
at::Tensor norm_of(const at::Tensor& tensor);

/// Throws ConfigError unless `value` is finite and `holds` is true. `holds` states
/// whether `value` is in its range. `expected` is the range in the error, such as "at
/// least 0".
void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected);

/// Throws ConfigError unless beta1 and beta2 are at least 0 and below 1.
void check_betas(const OptimizerOptions& options);

}  // namespace tandem
