#include "tandem/parallel/ddp/sync_batch_norm_module.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/graph/sync_batch_norm.h"

namespace tandem {

SyncBatchNormImpl::SyncBatchNormImpl(
    const torch::nn::BatchNormOptions& chosen, Communicator& comm)
    : NormImplBase(chosen), group_(std::make_shared<StatisticsGroup>(comm)) {}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (is_training() || !options.track_running_stats()) {
    return forward_in_training(input);
  }
  return torch::nn::functional::detail::batch_norm(
      input, running_mean, running_var, weight, bias, false, 0, options.eps());
}

torch::Tensor SyncBatchNormImpl::forward_in_training(const torch::Tensor& input) {
  const auto like = input.options().dtype(
      input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto ones = at::ones({options.num_features()}, like);
  const auto zeros = at::zeros_like(ones);
  const bool tracks = options.track_running_stats();
  double momentum = options.momentum().value_or(0);
  if (tracks) {
    num_batches_tracked += 1;
    if (!options.momentum()) {
      momentum = 1 / num_batches_tracked.item<double>();
    }
  }
  at::Tensor mean = tracks ? running_mean : zeros.clone();
  at::Tensor variance = tracks ? running_var : ones.clone();
  return sync_batch_norm(
      input, weight.defined() ? weight : ones, bias.defined() ? bias : zeros, mean,
      variance, momentum, options.eps(),
      [group = group_](const at::Tensor& mine) { return group->stack(mine); },
      "SyncBatchNorm");
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    throw ConfigError(
        "[sync batch norm] the input has the shape " + c10::str(input.sizes()) +
        ", expected samples x " + std::to_string(options.num_features()) +
        " channels, and possibly more; change BatchNormOptions or the layer before");
  }
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "tandem::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", affine=" << std::boolalpha
         << options.affine() << ")";
}

}  // namespace tandem
