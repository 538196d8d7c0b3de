#pragma once

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tandem/kernels/cuda/products.h"

namespace tandem {

/// What kernels for float32 or float64 take and give, for plain loops in float64.
using Values = std::vector<double>;

/// Values of T from `least` to 1.
template <typename T>
Values random_values(int64_t count, double least, std::mt19937& generator) {
  std::uniform_real_distribution<double> distribution(least, 1);
  Values values(static_cast<size_t>(count));
  for (double& value : values) {
    value = static_cast<T>(distribution(generator));
  }
  return values;
}

template <typename T>
std::vector<T> as(const Values& values) {
  return std::vector<T>(values.begin(), values.end());
}

/// Every value, to this part of the largest.
template <typename T>
void expect_values_near(
    const std::vector<T>& found, const Values& expected, double tolerance,
    const char* what) {
  SCOPED_TRACE(what);
  double largest = 0;
  for (const double value : expected) {
    largest = std::max(largest, std::abs(value));
  }
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * largest) << i;
  }
}

inline double tolerance(cuda::Products products) {
  using cuda::Products;
  return products == Products::full ? 1e-5 : products == Products::tf32 ? 1e-3 : 1e-2;
}

inline at::Tensor tensor_of(const Values& values, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<double*>(values.data()), sizes, at::kDouble).clone();
}

inline Values values_of(const at::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  return Values(whole.data_ptr<double>(), whole.data_ptr<double>() + whole.numel());
}

}  // namespace tandem
