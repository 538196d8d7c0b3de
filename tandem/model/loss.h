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
  // Class whose targets count neither in the loss nor in the accuracy. A custom loss
  // must leave these targets out itself. No effect if targets are numbers.
  int64_t ignore_index = kNoIgnoredClass;

  /// Returns whether targets are numbers (mse, l1, bce); otherwise they are classes.
  bool of_numbers() const {
    return row_of(kind).of_numbers;
  }
  const Metric& metric() const {
    return *row_of(kind).metric;
  }
};

/// Returns the dimension of the classes in an output with `dims` dimensions. Models of
/// sequences return samples x positions x classes, unlike the inputs of PyTorch's
/// losses.
int64_t class_dim(int64_t dims);

/// Returns the loss of evaluations, which is `loss` without label smoothing.
Loss evaluation_loss(Loss loss);

/// Returns the loss summed over all targets, a scalar with autograd history. Uses
/// `loss.own`, or `loss.kind` if `own` is empty.
///
/// If targets are classes, `targets` are int64, and `output` has one dimension more
/// than `targets`, the dimension of classes. `output` has one of these shapes:
/// - samples x classes
/// - samples x positions x classes
/// - samples x classes x ..., with more dimensions, as in PyTorch
///
/// If targets are numbers (Loss::of_numbers()), a sample has as many targets as
/// outputs. The targets of bce are between 0 and 1.
///
/// Throws ConfigError if `own` does not return one value, or if targets are numbers and
/// their number is not the number of outputs.
at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Returns the factor by which the summed losses of all ranks and micro-batches are
/// multiplied:
/// - 1 for Reduction::sum
/// - 1 / global_count for Reduction::mean, if targets are classes
/// - 1 / (global_count * elements_per_sample) for Reduction::mean, if targets are
///   numbers
///
/// `global_count` is Batch::global_count. It counts the targets of the global batch
/// that count in the loss or, if targets are numbers, the samples. If it is 0, the
/// summed loss is 0 and the factor is finite.
double loss_weight(const Loss& loss, int64_t global_count, int64_t elements_per_sample);

/// Returns loss_weight() for the number of elements per sample in `targets`. The first
/// dimension of `targets` is the samples.
double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets);

/// Compares a model's number of outputs per sample with the number of classes of its
/// data. Throws ConfigError if there are fewer outputs; warns if there are more.
void check_num_outputs(int64_t num_outputs, int64_t num_classes);

/// Throws ConfigError if targets are numbers and a model's number of outputs per sample
/// differs from the number of targets per sample.
void check_num_numbers(int64_t num_outputs, int64_t num_targets);

/// Checks that the shape of a model's output fits targets that are classes, in one of
/// the shapes of summed_loss(). Throws ConfigError if it does not fit, and applies
/// check_num_outputs() to the dimension of classes. A model may have more classes of
/// positions, such as tokens, than the data.
void check_output_shape(
    at::IntArrayRef output, at::IntArrayRef targets, int64_t num_classes);

/// Returns the sum of Loss::metric() over all targets, as a scalar tensor. The tensors
/// have the shapes of summed_loss(). The metric of a target is:
/// - if targets are classes, 1 if the output of its class is the largest output,
///   otherwise 0. Targets of the class loss.ignore_index do not count.
/// - with bce, 1 if output > 0 equals target > 0.5, otherwise 0
/// - with mse and l1, the absolute error
///
/// Returns NaN if targets are numbers and the output of a custom loss has another
/// number of elements.
at::Tensor metric_sum(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

}  // namespace tandem
