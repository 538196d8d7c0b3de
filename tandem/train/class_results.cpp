#include "tandem/train/class_results.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/model/loss.h"

namespace tandem {

namespace {

// With more classes, the matrix would need more than 200 MB.
constexpr int64_t kMostMatrixClasses = 5000;
constexpr size_t kMostMistakes = 20;

size_t longest_of(const std::vector<std::string>& names) {
  size_t longest = 0;
  for (const auto& name : names) {
    longest = std::max(longest, name.size());
  }
  return longest;
}

}  // namespace

void ClassResults::begin(const EvaluatedBatch& evaluated) {
  const bool has_classes = evaluated.data.has_classes();
  const auto& output = evaluated.output;
  const int64_t size =
      has_classes
          ? std::max(output.size(class_dim(output.dim())), evaluated.data.num_classes)
          : 0;
  if (!has_classes || size > kMostMatrixClasses) {
    throw ConfigError(fmt::format(
        "[eval] the targets are {}, expected at most {} classes for --details; leave "
        "out --details",
        has_classes ? fmt::format("{} classes", size) : "numbers", kMostMatrixClasses));
  }
  for (const auto& name : evaluated.data.class_names) {
    names_.push_back(with_escapes(name));
  }
  for (auto i = static_cast<int64_t>(names_.size()); i < size; ++i) {
    names_.push_back(std::to_string(i));
  }
  counts_ = at::zeros({size, size}, at::kLong);
}

void ClassResults::add(const EvaluatedBatch& evaluated) {
  if (names_.empty()) {
    begin(evaluated);
  }
  const int64_t dim = class_dim(evaluated.output.dim());
  const auto predictions = evaluated.output.argmax(dim).reshape(-1).cpu();
  const auto targets = evaluated.batch.targets.reshape(-1).cpu();
  const auto shown = targets.ne(evaluated.ignore_index);
  const auto cells = (targets * counts_.size(1) + predictions).masked_select(shown);
  counts_ += at::bincount(cells, {}, counts_.numel()).view_as(counts_);
}

int64_t ClassResults::count(int64_t target, int64_t prediction) const {
  return counts_.data_ptr<int64_t>()[target * counts_.size(1) + prediction];
}

std::string ClassResults::accuracies() const {
  const size_t width = std::max(longest_of(names_), std::string("class").size());
  std::string text = fmt::format(
      "{:<{}}  {:>9}  {:>9}  {:>8}\n", "class", width, "targets", "correct",
      "accuracy");
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const int64_t all = counts_[row].sum().item<int64_t>();
    if (all > 0) {
      text += fmt::format(
          "{:<{}}  {:>9}  {:>9}  {:>7.2f}%\n", names_[i], width, all, count(row, row),
          100 * static_cast<double>(count(row, row)) / static_cast<double>(all));
    }
  }
  return text;
}

std::string ClassResults::matrix() const {
  const size_t width = longest_of(names_);
  const size_t cell =
      std::max(width, std::to_string(counts_.max().item<int64_t>()).size());
  std::string text =
      "confusion matrix: a row for each class, a column for each "
      "prediction\n" +
      std::string(width, ' ');
  for (const auto& name : names_) {
    text += fmt::format("  {:>{}}", name, cell);
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    text += fmt::format("\n{:<{}}", names_[i], width);
    for (size_t j = 0; j < names_.size(); ++j) {
      text += fmt::format(
          "  {:>{}}", count(static_cast<int64_t>(i), static_cast<int64_t>(j)), cell);
    }
  }
  return text + "\n";
}

std::string ClassResults::mistakes() const {
  // Number of targets, class and prediction.
  std::vector<std::tuple<int64_t, int64_t, int64_t>> found;
  for (int64_t i = 0; i < counts_.size(0); ++i) {
    for (int64_t j = 0; j < counts_.size(1); ++j) {
      if (i != j && count(i, j) > 0) {
        found.emplace_back(-count(i, j), i, j);
      }
    }
  }
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), kMostMistakes));
  std::string text = "most frequent mistakes\n";
  for (const auto& [less, i, j] : found) {
    text += fmt::format(
        "{:>9}  {} predicted as {}\n", -less, names_[static_cast<size_t>(i)],
        names_[static_cast<size_t>(j)]);
  }
  return text;
}

std::string ClassResults::text() const {
  if (names_.empty()) {
    return "";
  }
  return accuracies() + (counts_.size(0) <= kMostColumns ? matrix() : mistakes());
}

}  // namespace tandem
