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
};

/// Returns the loss summed over all samples (and elements, for MSE), a scalar with
/// autograd history.
at::Tensor summed_loss(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets);

/// Returns the summed loss of `loss.own`, or of `loss.kind` if `own` is empty.
///
/// Throws ConfigError if `own` does not return one value.
at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// Returns the factor for the summed losses of all ranks and micro-batches: 1 for
/// Reduction::sum, otherwise 1 / samples in the global batch, for MSE also divided by
/// the elements per sample.
double loss_weight(const Loss& loss, int64_t global_count, int64_t elements_per_sample);

/// Returns the factor of the function above, with the elements per sample of `targets`.
/// `targets` has the shape samples x elements, or one class per sample.
double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets);

/// Compares a model's number of outputs per sample with the number of classes of its
/// data. Throws ConfigError if there are fewer outputs; warns if there are more.
void check_num_outputs(int64_t num_outputs, int64_t num_classes);

/// Returns the number of samples whose largest output is the target, as a scalar
/// tensor; 0 for MSE.
at::Tensor count_correct(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets);

}  // namespace tandem
