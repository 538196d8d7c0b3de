#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/optim/algorithm.h"

namespace tandem {

namespace {

// Returns values.mean(dim, keepdim=True). In main memory, the additions are in the same
// order for any number of threads.
at::Tensor mean_over(const at::Tensor& values, int64_t dim) {
  if (!values.is_cpu()) {
    return values.mean(at::IntArrayRef{dim}, true);
  }
  auto dims = values.sizes().vec();
  const auto at_dim = static_cast<size_t>(values.dim() + dim);
  const int64_t count = dims[at_dim];
  int64_t inner = 1;
  for (size_t i = at_dim + 1; i < dims.size(); ++i) {
    inner *= dims[i];
  }
  dims[at_dim] = 1;
  const auto source = values.to(at::kDouble).contiguous();
  const auto sums = at::zeros(dims, at::kDouble);
  const auto* from = source.data_ptr<double>();
  auto* const to = sums.data_ptr<double>();
  for (int64_t outer = 0; outer < sums.numel() / inner; ++outer) {
    for (int64_t i = 0; i < count; ++i, from += inner) {
      for (int64_t j = 0; j < inner; ++j) {
        to[outer * inner + j] += from[j];
      }
    }
  }
  return sums.div_(count).to(values.scalar_type());
}

void average(const at::Tensor& mean, const at::Tensor& value, double weight) {
  mean.mul_(1 - weight).add_(value.mul(weight));
}

at::Tensor root_mean_square(const at::Tensor& tensor) {
  return norm_of(tensor).div_(std::sqrt(static_cast<double>(tensor.numel())));
}

// Uses only operators whose results do not depend on the number of threads: each rounds
// once per element.
//
// Source: torch/optim/_adafactor.py of PyTorch 2.5; Shazeer and Stern, "Adafactor:
// Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018.
class AdafactorAlgorithm final : public Algorithm {
 public:
  explicit AdafactorAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"row_var", "col_var", "variance"}) {}

  std::optional<std::vector<int64_t>> state_dims(
      size_t state, const std::vector<int64_t>& dims) const override {
    const bool factored = dims.size() > 1;
    if (factored != (state < 2)) {
      return std::nullopt;
    }
    auto shape = dims;
    if (factored) {
      shape[shape.size() - 1 - state] = 1;
    }
    return shape;
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const auto& param = tensors.param;
    const auto step = static_cast<double>(context.step);
    const double eps = eps_of(param.scalar_type());
    const auto size = root_mean_square(param).clamp_min_(options_.eps2);
    param.mul_(1 - context.lr * context.weight_decay);
    const auto g = tensors.grad.mul(context.gradient_scale);
    const auto update =
        g.div(variance_of(tensors, g, std::pow(step, options_.beta2_decay), eps)
                  .clamp_min_(eps * eps)
                  .sqrt_());
    const auto clipped =
        root_mean_square(update).div_(options_.update_clip).clamp_min_(1);
    const double rate = std::min(context.lr, 1 / std::sqrt(step));
    param.sub_(update.mul(size.mul_(rate).div_(clipped)));
  }

 private:
  // Updates the means of squares, and returns the estimated mean of squares of each
  // element.
  static at::Tensor variance_of(
      const UpdateTensors& tensors, const at::Tensor& g, double weight, double eps) {
    const auto squares = g.mul(g);
    if (g.dim() < 2) {
      average(tensors.states[2], squares, weight);
      return tensors.states[2].clone();
    }
    const auto& rows = tensors.states[0];
    const auto& columns = tensors.states[1];
    average(rows, mean_over(squares, -1), weight);
    average(columns, mean_over(squares, -2), weight);
    return rows.mul(columns).div_(mean_over(rows, -2).clamp_min_(eps));
  }

  // Returns eps, or the machine epsilon of the parameter's type.
  double eps_of(at::ScalarType dtype) const {
    const double machine = dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                           : dtype == at::kHalf ? 9.765625e-4
                           : dtype == at::kBFloat16
                               ? 7.8125e-3
                               : std::numeric_limits<float>::epsilon();
    return options_.eps == 0 ? machine : options_.eps;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adafactor> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<AdafactorAlgorithm>(options);
}

}  // namespace tandem
