#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/train/evaluation.h"

namespace tandem {

/// Results of an evaluation for each class: accuracies and the confusion matrix.
class ClassResults {
 public:
  /// Counts the targets of a batch, without those of the class that the loss ignores.
  /// Throws ConfigError if the targets are not classes.
  void add(const EvaluatedBatch& evaluated);

  /// Returns a table with the accuracy of each class. If there are at most
  /// kMostColumns classes, adds the confusion matrix, otherwise the most frequent
  /// mistakes.
  std::string text() const;

  static constexpr int64_t kMostColumns = 20;

 private:
  void begin(const EvaluatedBatch& evaluated);
  int64_t count(int64_t target, int64_t prediction) const;
  std::string accuracies() const;
  std::string matrix() const;
  std::string mistakes() const;

  // Names of the classes, and of outputs without a class.
  std::vector<std::string> names_;
  // Number of targets for each class and prediction: names x names, int64.
  at::Tensor counts_;
};

}  // namespace tandem
