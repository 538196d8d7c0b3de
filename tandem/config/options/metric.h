#pragma once

#include <algorithm>
#include <string>

namespace tandem {

/// A metric that runs report in addition to their loss.
struct Metric {
  // Last part of test_key() and train_key().
  const char* key;
  const char* name;
  // True if the value is a percentage of the targets; false if it is a mean over the
  // targets.
  bool is_percentage;
  bool higher_is_better;

  /// Returns the value of the metric for its sum over `count` targets; 0 without
  /// targets.
  constexpr double value(double sum, double count) const {
    return (is_percentage ? 100 * sum : sum) / std::max(1.0, count);
  }
};

/// Percentage of targets for which the model's output is correct.
inline constexpr Metric kAccuracy{"accuracy", "accuracy", true, true};
/// Mean absolute difference of outputs and targets.
inline constexpr Metric kAbsoluteError{"mae", "mean absolute error", false, false};

/// All metrics.
inline constexpr const Metric* kMetrics[] = {&kAccuracy, &kAbsoluteError};

/// Returns the key of a metric's value on the test samples, or on the training samples,
/// in summary.json and metrics.jsonl.
inline std::string test_key(const Metric& metric) {
  return std::string("test_") + metric.key;
}
inline std::string train_key(const Metric& metric) {
  return std::string("train_") + metric.key;
}

}  // namespace tandem
