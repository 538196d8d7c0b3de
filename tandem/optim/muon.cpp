#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>

#include <algorithm>
#include <cmath>

#include "tandem/optim/algorithm.h"

namespace tandem {

namespace {

// Returns a matrix with the singular vectors of `matrix`, whose singular values are
// about 1. Computes in the type of `matrix`; torch.optim.Muon computes in bfloat16.
at::Tensor orthogonalized(const at::Tensor& matrix, int64_t steps) {
  constexpr double kA = 3.4445;
  constexpr double kB = -4.7750;
  constexpr double kC = 2.0315;
  constexpr double kEps = 1e-7;
  const bool tall = matrix.size(0) > matrix.size(1);
  auto x = (tall ? matrix.t() : matrix).div(norm_of(matrix).clamp_min_(kEps));
  for (int64_t i = 0; i < steps; ++i) {
    const auto gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA, 1);
  }
  return tall ? x.t() : x;
}

// Matrices: Muon with Nesterov momentum. Other parameters: AdamW. The products of
// matrices are those of LibTorch, so their last bits can depend on the number of
// threads.
//
// Source: torch/optim/_muon.py of PyTorch 2.9; Jordan et al., "Muon: An optimizer for
// hidden layers in neural networks", 2024.
class MuonAlgorithm final : public Algorithm {
 public:
  explicit MuonAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"momentum_buffer", "exp_avg", "exp_avg_sq"}) {
    auto adamw = options;
    adamw.kind = OptimizerKind::adamw;
    adamw_ = make_algorithm(adamw);
  }

  std::optional<std::vector<int64_t>> state_dims(
      size_t state, const std::vector<int64_t>& dims) const override {
    return (dims.size() == 2) == (state == 0) ? std::optional(dims) : std::nullopt;
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const auto& param = tensors.param;
    if (param.dim() != 2) {
      update_parameter(
          *adamw_, false, {param, tensors.grad, {tensors.states[1], tensors.states[2]}},
          context);
      return;
    }
    const auto& buffer = tensors.states[0];
    const double momentum = options_.muon_momentum;
    const auto g = tensors.grad.mul(context.gradient_scale);
    buffer.mul_(momentum).add_(g.mul(1 - momentum));
    const auto direction = g.mul(1 - momentum).add_(buffer.mul(momentum));
    param.mul_(1 - context.lr * context.weight_decay);
    param.sub_(orthogonalized(direction, options_.ns_steps)
                   .mul(context.lr * scale_of(param.size(0), param.size(1))));
  }

 private:
  double scale_of(int64_t num_rows, int64_t num_columns) const {
    const auto rows = static_cast<double>(num_rows);
    const auto columns = static_cast<double>(num_columns);
    return options_.match_rms_adamw ? 0.2 * std::sqrt(std::max(rows, columns))
                                    : std::sqrt(std::max(1.0, rows / columns));
  }

  std::unique_ptr<Algorithm> adamw_;
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::muon> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<MuonAlgorithm>(options);
}

}  // namespace tandem
