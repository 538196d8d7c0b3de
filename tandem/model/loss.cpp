#include "tandem/model/loss.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

at::Tensor built_in_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  const auto cross_entropy = [&](const at::Tensor& logits, double label_smoothing) {
    return at::cross_entropy_loss(
        logits, targets, {}, at::Reduction::Sum, loss.ignore_index, label_smoothing);
  };
  switch (loss.kind) {
    case LossKind::nll:
      return at::nll_loss(output, targets, {}, at::Reduction::Sum, loss.ignore_index);
    case LossKind::mse:
      return at::mse_loss(output, targets, at::Reduction::Sum);
    case LossKind::softmax_cross_entropy:
      return cross_entropy(output.softmax(1), 0);
    default:
      return cross_entropy(output, loss.label_smoothing);
  }
}

}  // namespace

Loss evaluation_loss(Loss loss) {
  loss.label_smoothing = 0;
  return loss;
}

at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  if (!loss.own) {
    return built_in_loss(loss, output, targets);
  }
  auto sum = loss.own(output, targets);
  if (sum.numel() != 1) {
    throw ConfigError(
        "[model] the number of values of the custom loss is " +
        std::to_string(sum.numel()) +
        ", expected 1, the sum over all samples; add .sum() to the loss");
  }
  return sum.reshape({});
}

double loss_weight(
    const Loss& loss, int64_t global_count, int64_t elements_per_sample) {
  if (loss.reduction == Reduction::sum) {
    return 1;
  }
  const int64_t per_sample = loss.kind == LossKind::mse ? elements_per_sample : 1;
  return 1.0 / static_cast<double>(std::max<int64_t>(1, global_count * per_sample));
}

double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets) {
  return loss_weight(
      loss, global_count,
      targets.numel() > 0 ? targets.numel() / targets.size(0) : int64_t{1});
}

void check_num_outputs(int64_t num_outputs, int64_t num_classes) {
  const std::string found = std::to_string(num_outputs);
  const std::string wanted = std::to_string(num_classes);
  if (num_outputs < num_classes) {
    throw ConfigError(
        "[model] the number of outputs is " + found + ", expected " + wanted +
        ", the number of classes in the data; give the last layer " + wanted +
        " outputs");
  }
  if (num_outputs > num_classes) {
    log_warning(
        "[model] " + std::to_string(num_outputs - num_classes) +
        " outputs have no class, and training makes them small: the model has " +
        found + " outputs, the data has " + wanted + " classes; give the last layer " +
        wanted + " outputs, or set Dataset::num_classes to " + found);
  }
}

at::Tensor count_correct(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  if (loss.kind == LossKind::mse) {
    return at::zeros({}, at::kLong);
  }
  auto correct = output.detach().argmax(1).eq(targets);
  // The largest output is never at a negative index.
  if (loss.ignore_index >= 0) {
    correct.logical_and_(targets.ne(loss.ignore_index));
  }
  return correct.sum();
}

}  // namespace tandem
