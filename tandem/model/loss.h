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
  // Custom loss, which replaces `kind`; then `kind` only defines the metric. Empty if
  // the loss is not custom.
  LossFunction own = {};
  // For cross_entropy: label_smoothing of torch.nn.CrossEntropyLoss, 0 to 1.
  double label_smoothing = 0;
  // Targets of this class count neither in the loss nor as correct. A custom loss must
  // leave them out itself. No effect if targets are numbers.
  int64_t ignore_index = kNoIgnoredClass;

  /// Returns whether targets are numbers (mse, l1, bce); otherwise they are classes.
  bool of_numbers() const {
    return row_of(kind).of_numbers;
  }
  const Metric& metric() const {
    return *row_of(kind).metric;
  }
};

/// Returns the loss of evaluations, which is `loss` without label smoothing.
Loss evaluation_loss(Loss loss);

/// Returns the loss summed over all targets, a scalar with autograd history. Uses
/// `loss.own`, or `loss.kind` if `own` is empty.
///
/// Classes: `targets` are int64. `output` has the shape of `targets` and a dimension of
/// classes: samples x classes, samples x positions x classes, or, with more dimensions,
/// samples x classes x ... as in PyTorch. Numbers (Loss::of_numbers()): a sample has as
/// many targets as outputs, and the targets of bce are between 0 and 1.
///
/// Throws ConfigError if `own` does not return one value, or if the number of outputs
/// is not the number of targets that are numbers.
at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Returns the factor by which the summed losses of all ranks and micro-batches are
/// multiplied. It is 1 for Reduction::sum. For the mean it is 1 / global_count or, if
/// targets are numbers, 1 / (global_count * elements_per_sample). `global_count` is
/// Batch::global_count: the number of classes, or of samples whose targets are numbers,
/// in the global batch that count in the loss. If it is 0, the summed loss is 0 and the
/// factor is finite.
double loss_weight(const Loss& loss, int64_t global_count, int64_t elements_per_sample);

/// Returns loss_weight() for the number of elements per sample in `targets`, whose
/// first dimension is the samples.
double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets);

/// Compares a model's number of outputs per sample with the number of classes of its
/// data. Throws ConfigError if there are fewer outputs; warns if there are more.
void check_num_outputs(int64_t num_outputs, int64_t num_classes);

/// Throws ConfigError if a model's number of outputs per sample is not the number of
/// targets per sample that are numbers.
void check_num_numbers(int64_t num_outputs, int64_t num_targets);

/// Compares the shape of a model's output with the shape of targets that are classes,
/// as summed_loss() describes them. Throws ConfigError if they do not fit together, and
/// applies check_num_outputs() to the dimension of classes.
void check_output_shape(
    at::IntArrayRef output, at::IntArrayRef targets, int64_t num_classes);

/// Returns the sum of Loss::metric() over all targets, as a scalar tensor. The tensors
/// have the shapes of summed_loss().
///
/// Classes: the number of targets whose class has the largest output, without targets
/// of the class loss.ignore_index. bce: the number of targets for which output > 0
/// equals target > 0.5. mse and l1: the sum of absolute errors. Returns NaN if a custom
/// loss has another number of outputs than of targets that are numbers.
at::Tensor metric_sum(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

}  // namespace tandem
