#include "tandem/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

at::Tensor loss_of_classes(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  if (output.dim() == 3) {
    return loss_of_classes(
        loss, output.reshape({-1, output.size(2)}), targets.reshape(-1));
  }
  const auto cross_entropy = [&](const at::Tensor& logits, double label_smoothing) {
    return at::cross_entropy_loss(
        logits, targets, {}, at::Reduction::Sum, loss.ignore_index, label_smoothing);
  };
  switch (loss.kind) {
    case LossKind::nll:
      return at::nll_loss_nd(
          output, targets, {}, at::Reduction::Sum, loss.ignore_index);
    case LossKind::softmax_cross_entropy:
      return cross_entropy(output.softmax(1), 0);
    default:
      return cross_entropy(output, loss.label_smoothing);
  }
}

// Returns targets that are numbers in the shape and the type of `output`.
at::Tensor numbers_as(const at::Tensor& targets, const at::Tensor& output) {
  if (targets.numel() != output.numel()) {
    const int64_t samples = std::max<int64_t>(1, targets.size(0));
    check_num_numbers(output.numel() / samples, targets.numel() / samples);
  }
  return targets.to(output.scalar_type()).reshape(output.sizes());
}

at::Tensor loss_of_numbers(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets) {
  switch (kind) {
    case LossKind::l1:
      return at::l1_loss(output, targets, at::Reduction::Sum);
    case LossKind::bce:
      return at::binary_cross_entropy_with_logits(
          output, targets, {}, {}, at::Reduction::Sum);
    default:
      return at::mse_loss(output, targets, at::Reduction::Sum);
  }
}

}  // namespace

int64_t class_dim(int64_t dims) {
  return dims == 3 ? 2 : 1;
}

Loss evaluation_loss(Loss loss) {
  loss.label_smoothing = 0;
  return loss;
}

at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  if (!loss.own) {
    return loss.of_numbers()
               ? loss_of_numbers(loss.kind, output, numbers_as(targets, output))
               : loss_of_classes(loss, output, targets);
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
  const int64_t per_sample = loss.of_numbers() ? elements_per_sample : 1;
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
    const int64_t more = num_outputs - num_classes;
    log_warning(
        "[model] " +
        (more == 1 ? "1 output has no class, and training makes it small"
                   : std::to_string(more) +
                         " outputs have no class, and training makes them small") +
        ": the model has " + found + " outputs, the data has " + wanted +
        " classes; give the last layer " + wanted +
        " outputs, or set Dataset::num_classes to " + found);
  }
}

void check_num_numbers(int64_t num_outputs, int64_t num_targets) {
  if (num_outputs != num_targets) {
    const std::string wanted = std::to_string(num_targets);
    throw ConfigError(
        "[model] the number of outputs is " + std::to_string(num_outputs) +
        ", expected " + wanted +
        ", the number of targets of a sample; give the last layer " + wanted +
        " outputs");
  }
}

void check_output_shape(
    at::IntArrayRef output, at::IntArrayRef targets, int64_t num_classes) {
  const auto dim =
      static_cast<size_t>(class_dim(static_cast<int64_t>(targets.size()) + 1));
  auto expected = targets.vec();
  expected.insert(expected.begin() + static_cast<std::ptrdiff_t>(dim), num_classes);
  auto found = output.vec();
  const bool same_dims = found.size() == expected.size();
  const int64_t classes = same_dims ? std::exchange(found[dim], num_classes) : 0;
  if (found != expected) {
    throw ConfigError(
        "[model] the shape of the output is " + c10::str(output) + ", expected " +
        c10::str(at::IntArrayRef(expected)) + ", samples x " +
        (dim == 2              ? "positions x classes"
         : targets.size() == 1 ? "classes"
                               : "classes x positions") +
        "; change the output of the model");
  }
  // Samples need not contain every class of a position, such as every token.
  if (targets.size() == 1 || classes < num_classes) {
    check_num_outputs(classes, num_classes);
  }
}

at::Tensor metric_sum(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  const auto found = output.detach();
  if (loss.of_numbers()) {
    if (loss.own && found.numel() != targets.numel()) {
      return at::full({}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
    }
    const auto wanted = numbers_as(targets, found);
    return loss.kind == LossKind::bce ? found.gt(0).eq(wanted.gt(0.5)).sum()
                                      : (found - wanted).abs().sum(at::kDouble);
  }
  auto correct = found.argmax(class_dim(found.dim())).eq(targets);
  // The largest output is never at a negative index.
  if (loss.ignore_index >= 0) {
    correct.logical_and_(targets.ne(loss.ignore_index));
  }
  return correct.sum();
}

}  // namespace tandem
