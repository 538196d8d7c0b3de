#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "tandem/config/options/model_options.h"

namespace tandem {

/// Custom loss function. Returns the loss summed over all samples, a scalar with
/// autograd history.
using LossFunction =
    std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// The loss that training minimizes.
struct Loss {
  // Kind of the loss, never `automatic`.
  LossKind kind = LossKind::cross_entropy;
  Reduction reduction = Reduction::mean;
  // Custom loss, which replaces `kind`; then `kind` only defines which samples are
  // correct. Empty if the loss is not custom.
  LossFunction own = {};
  // For cross_entropy: label_smoothing of torch.nn.CrossEntropyLoss, 0 to 1.
  double label_smoothing = 0;
  // Samples with this target count neither in the loss nor as correct. A custom loss
  // must leave them out itself. No effect for mse.
  int64_t ignore_index = kNoIgnoredClass;
};

/// Returns the loss of evaluations, which is `loss` without label smoothing.
Loss evaluation_loss(Loss loss);

/// Returns the loss summed over all samples (and elements, for MSE), a scalar with
/// autograd history. Uses `loss.own`, or `loss.kind` if `own` is empty. `output` has
/// the shape samples x classes. `targets` are int64 classes, one per sample; for MSE,
/// numbers in the shape of `output`.
///
/// Throws ConfigError if `own` does not return one value.
at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Returns the factor by which the summed losses of all ranks and micro-batches are
/// multiplied. It is 1 for Reduction::sum. For the mean it is 1 / global_count or, for
/// MSE, 1 / (global_count * elements_per_sample). `global_count` is the number of
/// samples in the global batch that count in the loss. If it is 0, the summed loss is 0
/// and the factor is finite.
double loss_weight(const Loss& loss, int64_t global_count, int64_t elements_per_sample);

/// Returns loss_weight() for the number of elements per sample in `targets`. The shape
/// of `targets` is samples x elements, or samples if each target is a class.
double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets);

/// Compares a model's number of outputs per sample with the number of classes of its
/// data. Throws ConfigError if there are fewer outputs; warns if there are more.
void check_num_outputs(int64_t num_outputs, int64_t num_classes);

/// Returns the number of samples whose largest output is that of the target class, as a
/// scalar tensor. Returns 0 for MSE. Samples with the target loss.ignore_index do not
/// count.
at::Tensor count_correct(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

}  // namespace tandem
