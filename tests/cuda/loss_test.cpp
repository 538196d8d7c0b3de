// The losses' kernels against LibTorch in float64.

#include "tandem/kernels/cuda/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/model/loss.h"
#include "tests/cuda/orders.h"

namespace tandem::loss_test {

constexpr double kWeight = 0.25;
constexpr float kScale = 8;

template <typename T>
std::vector<T> values_of(const at::Tensor& tensor) {
  const auto wide = tensor.to(at::kDouble).contiguous();
  const auto* data = wide.data_ptr<double>();
  return std::vector<T>(data, data + wide.numel());
}

// From nearly even to sure.
at::Tensor outputs(int64_t samples, int64_t classes) {
  const auto rows = at::linspace(0, 200, samples * classes, at::kDouble)
                        .sin()
                        .view({samples, classes});
  return rows * at::linspace(0.1, 15, samples, at::kDouble).view({samples, 1});
}

struct Expected {
  double loss;
  double correct;
  std::vector<double> grad;
};

Expected expected_of(
    LossKind kind, const at::Tensor& output, const at::Tensor& targets) {
  auto leaf = output.detach().clone().set_requires_grad(true);
  const auto loss = summed_loss(kind, leaf, targets);
  (loss * kWeight * kScale).backward();
  return {
      loss.item<double>(), count_correct(kind, output, targets).item<double>(),
      values_of<double>(leaf.grad())};
}

template <typename T>
double tolerance() {
  return sizeof(T) == 4 ? 1e-5 : 1e-12;
}

template <typename T>
void expect_near(const std::vector<T>& grad, const std::vector<double>& expected) {
  double largest = 0;
  for (const double value : expected) {
    largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < grad.size(); ++i) {
    ASSERT_NEAR(grad[i], expected[i], tolerance<T>() * largest) << i;
  }
}

struct Sums {
  std::vector<double> values = {0, 0, 0};

  void expect_near(double loss, double correct, double samples, double relative) const {
    EXPECT_NEAR(values[0], loss, relative * std::max(1.0, std::abs(loss)));
    EXPECT_EQ(values[1], correct);
    EXPECT_EQ(values[2], samples);
  }
};

template <typename T>
class LossKernels : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LossKernels, Types);

TYPED_TEST(LossKernels, OfClassesAreLibTorchs) {
  using T = TypeParam;
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::softmax_cross_entropy}) {
    SCOPED_TRACE(name_of(kind));
    for (const auto& [samples, classes] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {7, 10}, {33, 31}, {5, 32}, {3, 100}}) {
      SCOPED_TRACE(std::to_string(samples) + " x " + std::to_string(classes));
      auto output = values_of<T>(outputs(samples, classes));
      std::vector<int64_t> targets;
      for (int64_t i = 0; i < samples; ++i) {
        targets.push_back((3 + i * 3) % classes);
      }
      const auto expected = expected_of(
          kind,
          at::from_blob(
              output.data(), {samples, classes},
              sizeof(T) == 4 ? at::kFloat : at::kDouble)
              .to(at::kDouble),
          at::from_blob(targets.data(), {samples}, at::kLong).clone());
      std::vector<std::vector<double>> found;
      in_orders([&, samples = samples, classes = classes] {
        Sums sums;
        std::vector<T> grad(output.size(), T(7));
        cuda::class_loss<T>(
            kind, samples, classes, output.data(), targets.data(), {&kWeight, &kScale},
            sums.values.data(), grad.data(), nullptr, nullptr);
        sums.expect_near(
            expected.loss, expected.correct, static_cast<double>(samples),
            tolerance<T>());
        expect_near(grad, expected.grad);
        found.push_back(sums.values);
        EXPECT_EQ(found.back(), found.front());
      });
      // Without gradients, onto what is there.
      Sums sums;
      sums.values = found.front();
      cuda::class_loss<T>(
          kind, samples, classes, output.data(), targets.data(), {}, sums.values.data(),
          nullptr, nullptr, nullptr);
      EXPECT_EQ(sums.values[0], 2 * found.front()[0]);
      EXPECT_EQ(sums.values[2], 2 * static_cast<double>(samples));
    }
  }
}

// What a model that ends with log-softmax gives, and the losses behind it.
TYPED_TEST(LossKernels, TakeALogSoftmaxAlong) {
  using T = TypeParam;
  const auto logits = outputs(6, 35);
  const auto output = values_of<T>(logits);
  const std::vector<int64_t> targets{0, 34, 7, 7, 2, 30};
  const auto rounded = at::from_blob(
                           const_cast<T*>(output.data()), {6, 35},
                           sizeof(T) == 4 ? at::kFloat : at::kDouble)
                           .to(at::kDouble);
  const auto classes =
      at::from_blob(const_cast<int64_t*>(targets.data()), {6}, at::kLong);
  const auto expected = at::log_softmax(rounded, 1);
  for (const auto& [kernel, behind] : std::vector<std::pair<LossKind, LossKind>>{
           {LossKind::cross_entropy, LossKind::nll},
           {LossKind::cross_entropy, LossKind::cross_entropy},
           {LossKind::softmax_cross_entropy, LossKind::softmax_cross_entropy}}) {
    SCOPED_TRACE(name_of(behind));
    auto leaf = rounded.clone().set_requires_grad(true);
    const auto loss = summed_loss(behind, at::log_softmax(leaf, 1), classes);
    (loss * kWeight * kScale).backward();
    Sums sums;
    std::vector<T> grad(output.size(), T(7));
    std::vector<T> log_softmax(output.size(), T(7));
    cuda::class_loss<T>(
        kernel, 6, 35, output.data(), targets.data(), {&kWeight, &kScale},
        sums.values.data(), grad.data(), log_softmax.data(), nullptr);
    const auto correct =
        count_correct(behind, rounded, classes).template item<double>();
    sums.expect_near(loss.template item<double>(), correct, 6, tolerance<T>());
    expect_near(grad, values_of<double>(leaf.grad()));
    expect_near(log_softmax, values_of<double>(expected));
  }
}

TYPED_TEST(LossKernels, OfSquaresAreLibTorchs) {
  using T = TypeParam;
  for (const auto& [samples, elements] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 10}, {3, 700}}) {
    auto output = values_of<T>(outputs(samples, elements));
    auto targets = values_of<T>(outputs(samples, elements).cos());
    const auto wide = [&, samples = samples, elements = elements](std::vector<T>& of) {
      const auto dtype = sizeof(T) == 4 ? at::kFloat : at::kDouble;
      return at::from_blob(of.data(), {samples, elements}, dtype).to(at::kDouble);
    };
    const auto expected =
        expected_of(LossKind::mse, wide(output), wide(targets).clone());
    std::vector<std::vector<double>> found;
    in_orders([&, samples = samples, elements = elements] {
      Sums sums;
      std::vector<T> grad(output.size(), T(7));
      cuda::squared_loss(
          samples, elements, output.data(), targets.data(), {&kWeight, &kScale},
          sums.values.data(), grad.data(), nullptr);
      sums.expect_near(expected.loss, 0, static_cast<double>(samples), tolerance<T>());
      expect_near(grad, expected.grad);
      found.push_back(sums.values);
      EXPECT_EQ(found.back(), found.front());
    });
  }
}

TYPED_TEST(LossKernels, SaySoWhereNothingCanBeComputed) {
  using T = TypeParam;
  const auto loss_of = [](std::vector<T> output, std::vector<int64_t> targets) {
    std::vector<double> sums(3);
    std::vector<T> grad(output.size(), T(7));
    const auto samples = static_cast<int64_t>(targets.size());
    cuda::class_loss<T>(
        LossKind::nll, samples, static_cast<int64_t>(output.size()) / samples,
        output.data(), targets.data(), {&kWeight, nullptr}, sums.data(), grad.data(),
        nullptr, nullptr);
    return std::make_pair(sums, grad);
  };
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(loss_of({1, nan}, {1}).first[0]));
  EXPECT_EQ(loss_of({1, nan}, {1}).first[1], 0);
  // A class that is no column; the other sample has its gradient.
  for (const int64_t wrong : {-1, 2}) {
    const auto [sums, grad] = loss_of({1, 2, 3, 4}, {wrong, 1});
    EXPECT_TRUE(std::isnan(sums[0]));
    EXPECT_EQ(sums[1], 1);
    EXPECT_EQ(grad, (std::vector<T>{0, 0, 0, T(-kWeight)}));
  }
  // Ties go to the first.
  EXPECT_EQ(loss_of({5, 5}, {0}).first[1], 1);
  EXPECT_EQ(loss_of({5, 5}, {1}).first[1], 0);
  // More than float32 holds.
  const auto large = loss_of({T(-3e38), 0, T(-3e38), 0}, {0, 0}).first[0];
  if (sizeof(T) == 4) {
    EXPECT_TRUE(std::isinf(large));
  } else {
    EXPECT_EQ(large, 6e38);
  }
}

TYPED_TEST(LossKernels, OfNoSamplesChangeNothing) {
  using T = TypeParam;
  std::vector<double> sums = {1, 2, 3};
  cuda::class_loss<T>(
      LossKind::nll, 0, 10, nullptr, nullptr, {}, sums.data(), nullptr, nullptr,
      nullptr);
  cuda::squared_loss<T>(0, 10, nullptr, nullptr, {}, sums.data(), nullptr, nullptr);
  EXPECT_EQ(sums, (std::vector<double>{1, 2, 3}));
}

}  // namespace tandem::loss_test
