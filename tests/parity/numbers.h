#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/parity/python.h"

namespace tandem {

// Numbers that tests pass to tandem and to PyTorch, and functions that read and compare
// results.

using Numbers = std::vector<double>;

/// Returns the same float64 values as numbers() in tests/parity/ddp_peer.py: multiples
/// of 1/8 between -5/8 and 5/8, without an obvious pattern.
inline at::Tensor numbers(int64_t salt, at::IntArrayRef dims) {
  const auto count = at::ones(dims).numel();
  const auto index = at::arange(count, at::kLong);
  return (index.mul(7).add(5 * salt).remainder(11).sub(5).to(at::kDouble) / 8)
      .view(dims);
}

/// Runs a script of tests/parity, and returns the JSON object in the last line that it
/// prints. Warnings of PyTorch may precede this line. Fails the test if the line is not
/// an object.
inline nlohmann::json results_of_peer(const std::string& script) {
  const auto result = run_python({"-B", source_dir() + "/tests/parity/" + script});
  const size_t before = result.output.rfind("\n{");
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  auto results = nlohmann::json::parse(result.output.substr(begin), nullptr, false);
  EXPECT_TRUE(results.is_object()) << script << ": " << result.errors;
  return results;
}

/// Returns the values of a tensor in row-major order.
inline Numbers flat(const at::Tensor& tensor) {
  const auto values = tensor.detach().to(at::kDouble).contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

/// Returns the largest difference between corresponding elements. Differences are
/// relative if the absolute value of the element of `b` is above 1. Returns 1e300 if
/// the sizes differ.
inline double difference(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) {
    return 1e300;
  }
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  }
  return largest;
}

/// Returns the largest difference() between corresponding elements of two lists.
inline double difference(
    const std::vector<Numbers>& ours, const nlohmann::json& theirs) {
  if (ours.size() != theirs.size()) {
    return 1e300;
  }
  double largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, difference(ours[i], theirs[i].get<Numbers>()));
  }
  return largest;
}

}  // namespace tandem
