#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "tandem/config/options/model_options.h"

namespace tandem {

/// Custom loss. Returns the sum over all samples, a scalar with autograd history.
using LossFunction =
    std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// The loss that training minimizes.
struct Loss {
  // Not `automatic`.
  LossKind kind = LossKind::cross_entropy;
  Reduction reduction = Reduction::mean;
  // Custom loss instead of `kind`, which then only defines correct samples. Empty:
  // none.
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

/// Returns the factor for the summed losses of all ranks and micro-batches: 1 for
/// Reduction::sum, otherwise 1 / `global_count`, for MSE also divided by the elements
/// per sample. `global_count` is the number of samples in the global batch that count
/// in the loss. If it is 0, the summed loss is 0, and the factor is finite.
double loss_weight(const Loss& loss, int64_t global_count, int64_t elements_per_sample);

/// Returns the factor of the function above, with the elements per sample of `targets`.
/// `targets` has the shape samples x elements, or one class per sample.
double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets);

/// Compares a model's number of outputs per sample with the number of classes of its
/// data. Throws ConfigError if there are fewer outputs; warns if there are more.
void check_num_outputs(int64_t num_outputs, int64_t num_classes);

/// Returns the number of samples whose largest output is the target, as a scalar
/// tensor; 0 for MSE. Leaves out samples with the target loss.ignore_index.
at::Tensor count_correct(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

}  // namespace tandem
