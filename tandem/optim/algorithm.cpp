#include "tandem/optim/algorithm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"
#include "tandem/core/squares.h"

namespace tandem {

namespace {

// Minimum number of elements per thread.
constexpr int64_t kGrain = 65'536;

}  // namespace

void Algorithm::update_elements(
    const Elements& /*elements*/, const GroupContext& /*context*/) {
  TANDEM_CHECK(false, "this optimizer needs whole tensors");
}

OptimizerOptions with_defaults(OptimizerOptions options) {
  const auto& row = row_of(options.kind);
  const auto set = [](double& value, double fallback) {
    value = value == OptimizerOptions::kUnset ? fallback : value;
  };
  set(options.lr, row.lr);
  set(options.weight_decay, row.weight_decay);
  set(options.eps, row.eps);
  set(options.beta2, row.beta2);
  return options;
}

std::unique_ptr<Algorithm> make_algorithm(const OptimizerOptions& options) {
  return with_kind(options.kind, [&](auto kind) {
    std::unique_ptr<Algorithm> make_algorithm(decltype(kind), const OptimizerOptions&);
    return make_algorithm(kind, options);
  });
}

std::optional<Elements> elements_of(const UpdateTensors& tensors) {
  const auto& param = tensors.param;
  const auto dtype = param.scalar_type();
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.scalar_type() == dtype &&
           tensor.sizes() == param.sizes() && tensor.strides() == param.strides();
  };
  if ((dtype != at::kFloat && dtype != at::kDouble) ||
      !param.is_non_overlapping_and_dense() || !fits(param) || !fits(tensors.grad) ||
      !std::all_of(tensors.states.begin(), tensors.states.end(), fits)) {
    return std::nullopt;
  }
  Elements elements{dtype, param.numel(), param.data_ptr(), tensors.grad.data_ptr()};
  for (size_t i = 0; i < tensors.states.size(); ++i) {
    elements.states[i] = tensors.states[i].data_ptr();
  }
  return elements;
}

void update_in_threads(
    const Elements& elements, const std::function<void(const Elements& part)>& update) {
  const auto bytes = static_cast<int64_t>(c10::elementSize(elements.dtype));
  parallel_for(0, elements.count, kGrain, [&](int64_t begin, int64_t end) {
    Elements part = elements;
    part.count = end - begin;
    part.param = static_cast<char*>(part.param) + begin * bytes;
    part.grad = static_cast<const char*>(part.grad) + begin * bytes;
    for (auto& state : part.states) {
      state = state == nullptr ? nullptr : static_cast<char*>(state) + begin * bytes;
    }
    update(part);
  });
}

void update_parameter(
    Algorithm& algorithm, bool needs_whole_tensors, const UpdateTensors& tensors,
    const GroupContext& context) {
  const auto elements = needs_whole_tensors ? std::nullopt : elements_of(tensors);
  if (elements) {
    update_in_threads(*elements, [&](const Elements& part) {
      algorithm.update_elements(part, context);
    });
  } else {
    algorithm.update_tensors(tensors, context);
  }
}

at::Tensor decayed_gradient(
    const at::Tensor& grad, const at::Tensor& param, double gradient_scale,
    double weight_decay) {
  auto g = grad.mul(gradient_scale);
  return weight_decay != 0 ? g.add_(param, weight_decay) : g;
}

at::Tensor norm_of(const at::Tensor& tensor) {
  const bool summed = tensor.is_cpu() && (tensor.scalar_type() == at::kFloat ||
                                          tensor.scalar_type() == at::kDouble);
  if (!summed) {
    return at::linalg_vector_norm(tensor, 2, c10::nullopt, false, at::kDouble);
  }
  return at::scalar_tensor(
      std::sqrt(
          squares_in(
              tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous())
              .value()),
      at::kDouble);
}

void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected) {
  if (!holds || !std::isfinite(value)) {
    throw ConfigError(fmt::format(
        "[optim] {} is {}, expected {}; change {}", name, value, expected, name));
  }
}

void check_betas(const OptimizerOptions& options) {
  const auto check = [](const char* name, double beta) {
    check_setting(name, beta, beta >= 0 && beta < 1, "at least 0 and below 1");
  };
  check("beta1", options.beta1);
  check("beta2", options.beta2);
}

}  // namespace tandem
