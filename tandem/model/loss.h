#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "tandem/config/options/model_options.h"

namespace tandem {

/// A loss of the program's own, of outputs and targets: added up over all samples, a
/// scalar with autograd history.
using LossFunction =
    std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// The task: what training minimises. Its kind is not `automatic`.
struct Loss {
  LossKind kind = LossKind::cross_entropy;
  Reduction reduction = Reduction::mean;
  // Instead of what `kind` says, which then only says what a correct sample is.
  LossFunction own = {};
};

/// The loss added up over all samples (and elements, for MSE), not averaged.
/// A scalar with autograd history.
at::Tensor summed_loss(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets);

/// The same, or the loss of the program's own. Throws ConfigError when that is no
/// scalar.
at::Tensor summed_loss(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets);

/// The factor that makes summed losses of all ranks and micro-batches together
/// the loss asked for: 1 for `sum`, else 1 / (samples in the global batch, times
/// elements per sample for MSE).
double loss_weight(const Loss& loss, int64_t global_count, int64_t elements_per_sample);
/// The same for targets such as `targets`: samples x elements, or classes.
double loss_weight(const Loss& loss, int64_t global_count, const at::Tensor& targets);

/// Compares the number of outputs that a model has for a sample with the classes of its
/// data. Throws ConfigError if there are fewer outputs; warns if there are more.
void check_num_outputs(int64_t num_outputs, int64_t num_classes);

/// Number of samples whose largest output is the target; 0 for MSE.
at::Tensor count_correct(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets);

}  // namespace tandem
