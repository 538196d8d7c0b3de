#include "tandem/core/step_sums.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace tandem {

double StepSums::Values::mean_loss() const {
  return loss / std::max(1.0, samples);
}

StepSums::StepSums(double loss, double metric, double samples)
    : tensor_(at::empty({3}, at::kDouble)) {
  auto* values = tensor_.data_ptr<double>();
  values[0] = loss;
  values[1] = metric;
  values[2] = samples;
}

StepSums& StepSums::operator+=(const StepSums& more) {
  if (empty()) {
    tensor_ = more.tensor_;
  } else if (!more.empty()) {
    tensor_ = at::add(tensor_, more.tensor_);
  }
  return *this;
}

StepSums::Values StepSums::values() const {
  if (empty()) {
    return {};
  }
  const auto here = tensor_.cpu();
  const auto* values = here.data_ptr<double>();
  return {values[0], values[1], values[2]};
}

at::Tensor StepSums::tensor() const {
  return empty() ? at::zeros({3}, at::kDouble) : tensor_;
}

}  // namespace tandem
