#include "tandem/exec/compiled/loss_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// Outputs of one sample.
struct Row {
  const float* values;
  int64_t width;

  float largest() const {
    return *std::max_element(values, values + width);
  }
  float sum_of_exponentials(float most) const {
    float sum = 0;
    for (int64_t j = 0; j < width; ++j) {
      sum += std::exp(values[j] - most);
    }
    return sum;
  }
};

Row row_of(const at::Tensor& output, int64_t i) {
  return {output.data_ptr<float>() + i * output.size(1), output.size(1)};
}

// Returns the cross-entropy with the row's softmax as logits. The softmax is between 0
// and 1, so the exponentials do not overflow.
double softmax_class_loss(const Row& row, int64_t target) {
  const float most = row.largest();
  const float scale = 1 / row.sum_of_exponentials(most);
  const auto softmax = [&](int64_t j) {
    return scale * std::exp(row.values[j] - most);
  };
  float sum = 0;
  for (int64_t j = 0; j < row.width; ++j) {
    sum += std::exp(softmax(j));
  }
  return std::log(sum) - softmax(target);
}

// Returns the output of the target, averaged with the mean of all outputs. The weight
// of the mean is `smoothing`.
float smoothed_target(const Row& row, int64_t target, float smoothing) {
  const float sum = std::accumulate(row.values, row.values + row.width, 0.0F);
  return (1 - smoothing) * row.values[target] +
         smoothing / static_cast<float>(row.width) * sum;
}

double class_loss(const Loss& loss, const Row& row, int64_t target) {
  if (target < 0 || target >= row.width) {
    throw DataError(fmt::format(
        "[exec] the class of a sample is {}, expected 0 to {}; change the labels, or "
        "the model's number of classes",
        target, row.width - 1));
  }
  if (loss.kind == LossKind::nll) {
    return -row.values[target];
  }
  if (loss.kind == LossKind::softmax_cross_entropy) {
    return softmax_class_loss(row, target);
  }
  const float most = row.largest();
  const float own =
      loss.label_smoothing > 0
          ? smoothed_target(row, target, static_cast<float>(loss.label_smoothing))
          : row.values[target];
  return most + std::log(row.sum_of_exponentials(most)) - own;
}

// Writes `factor` times the gradient of the cross-entropy, softmax(row) - labels. The
// labels are one_hot(target), averaged with 1 / width. The weight of 1 / width is
// `smoothing`.
void cross_entropy_gradient(
    const Row& row, int64_t target, float smoothing, float factor, float* out) {
  const float most = row.largest();
  const float scale = factor / row.sum_of_exponentials(most);
  for (int64_t j = 0; j < row.width; ++j) {
    out[j] = scale * std::exp(row.values[j] - most);
  }
  if (smoothing > 0) {
    const float each = factor * smoothing / static_cast<float>(row.width);
    for (int64_t j = 0; j < row.width; ++j) {
      out[j] -= each;
    }
  }
  out[target] -= factor * (1 - smoothing);
}

// Writes `factor` times p * (g - sum of p * g). p is the softmax of the row, and g =
// softmax(p) - one_hot(target) is the gradient of the loss with respect to p.
void softmax_gradient(const Row& row, int64_t target, float factor, float* out) {
  const float most = row.largest();
  const float scale = 1 / row.sum_of_exponentials(most);
  float sum = 0;
  for (int64_t j = 0; j < row.width; ++j) {
    out[j] = scale * std::exp(row.values[j] - most);
    sum += std::exp(out[j]);
  }
  const auto gradient = [&](int64_t j) {
    return std::exp(out[j]) / sum - (j == target ? 1.0F : 0.0F);
  };
  float mean = 0;
  for (int64_t j = 0; j < row.width; ++j) {
    mean += out[j] * gradient(j);
  }
  for (int64_t j = 0; j < row.width; ++j) {
    out[j] *= factor * (gradient(j) - mean);
  }
}

// Returns log(1 + exp(x)) - x * target, the binary cross-entropy of sigmoid(x). The
// exponential does not overflow.
double binary_loss(double x, double target) {
  return std::max(x, 0.0) - x * target + std::log1p(std::exp(-std::abs(x)));
}

LossSums sum_over_numbers(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets) {
  const auto* a = output.data_ptr<float>();
  const auto* b = targets.data_ptr<float>();
  LossSums sums;
  for (int64_t i = 0; i < output.numel(); ++i) {
    const auto error = static_cast<double>(a[i] - b[i]);
    if (kind == LossKind::bce) {
      sums.loss += binary_loss(a[i], b[i]);
      sums.metric += (a[i] > 0) == (b[i] > 0.5F) ? 1 : 0;
    } else {
      sums.loss += kind == LossKind::mse ? error * error : std::abs(error);
      sums.metric += std::abs(error);
    }
  }
  return sums;
}

// Returns the derivative of the loss of a number with respect to the output `x`.
float number_gradient(LossKind kind, float x, float target) {
  const float error = x - target;
  switch (kind) {
    case LossKind::l1:
      return static_cast<float>((error > 0) - (error < 0));
    case LossKind::bce:
      return 1 / (1 + std::exp(-x)) - target;
    default:
      return 2 * error;
  }
}

void check_targets(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  const bool fits =
      loss.of_numbers()
          ? targets.scalar_type() == at::kFloat && targets.numel() == output.numel()
          : targets.scalar_type() == at::kLong && targets.numel() == output.size(0);
  TANDEM_CHECK(fits && targets.is_contiguous(), "targets do not fit the output");
}

}  // namespace

LossSums sum_losses(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets) {
  check_targets(loss, output, targets);
  if (loss.of_numbers()) {
    return sum_over_numbers(loss.kind, output, targets);
  }
  LossSums sums;
  const auto* classes = targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < output.size(0); ++i) {
    if (classes[i] == loss.ignore_index) {
      continue;
    }
    const Row row = row_of(output, i);
    sums.loss += class_loss(loss, row, classes[i]);
    const auto* most = std::max_element(row.values, row.values + row.width);
    sums.metric += most - row.values == classes[i] ? 1 : 0;
  }
  // A loss above the largest float32 value becomes infinite, as in PyTorch: training
  // has diverged.
  if (sums.loss > std::numeric_limits<float>::max()) {
    sums.loss = std::numeric_limits<double>::infinity();
  }
  return sums;
}

void loss_gradient(
    const Loss& loss, const at::Tensor& output, const at::Tensor& targets,
    double weight, float* grad) {
  const auto factor = static_cast<float>(weight);
  if (loss.of_numbers()) {
    const auto* a = output.data_ptr<float>();
    const auto* b = targets.data_ptr<float>();
    for (int64_t i = 0; i < output.numel(); ++i) {
      grad[i] = factor * number_gradient(loss.kind, a[i], b[i]);
    }
    return;
  }
  const auto* classes = targets.data_ptr<int64_t>();
  std::fill_n(grad, output.numel(), 0.0F);
  for (int64_t i = 0; i < output.size(0); ++i) {
    if (classes[i] == loss.ignore_index) {
      continue;
    }
    const Row row = row_of(output, i);
    float* out = grad + i * row.width;
    if (loss.kind == LossKind::softmax_cross_entropy) {
      softmax_gradient(row, classes[i], factor, out);
    } else if (loss.kind == LossKind::cross_entropy) {
      cross_entropy_gradient(
          row, classes[i], static_cast<float>(loss.label_smoothing), factor, out);
    } else {
      out[classes[i]] -= factor;
    }
  }
}

}  // namespace tandem
