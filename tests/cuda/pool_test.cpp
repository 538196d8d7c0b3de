// ReLU, pool and dropout in one kernel against LibTorch's operators one after the
// other, bit for bit.

#include "tandem/kernels/cuda/pool.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/max_pool2d.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/model/dropout.h"
#include "tests/core/expect.h"
#include "tests/cuda/orders.h"

namespace tandem::pool_test {

using cuda::ReluAndDropout;
using cuda::PoolShape;
using testing::HasSubstr;

constexpr int64_t kLayer = 5;
const BatchPlace kPlace{0x123456789abcdef0, 3, 100'000, 7, 0, 1};
const SampleContext kContext{0x123456789abcdef0, 3, 100'000, 7};

template <typename T>
std::vector<T> values_of(const at::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  const T* data = whole.data_ptr<T>();
  return std::vector<T>(data, data + whole.numel());
}

// With many values twice, so that a window's largest is often not alone; and a third
// negative.
template <typename T>
std::vector<T> ragged(int64_t count, int64_t step) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<T>(i * step % 11 - 4) / T(3);
  }
  return values;
}

template <typename T>
class PoolKernels : public testing::Test {
 protected:
  static constexpr auto kDtype = sizeof(T) == 4 ? at::kFloat : at::kDouble;

  // Forward and backward.
  static std::pair<std::vector<T>, std::vector<T>> expected(
      const PoolShape& s, const ReluAndDropout& options, std::vector<T> in,
      std::vector<T> grad_out) {
    const std::vector<int64_t> sizes{s.images, s.channels, s.height, s.width};
    auto leaf = at::from_blob(in.data(), sizes, kDtype).clone().set_requires_grad(true);
    auto out = at::max_pool2d(options.relu ? leaf.relu() : leaf, 2);
    if (options.place != nullptr) {
      out =
          out * dropout_mask(kContext, kLayer, s.images, s.outputs(), options.p, kDtype)
                    .view(out.sizes());
    }
    out.backward(at::from_blob(grad_out.data(), out.sizes(), kDtype));
    return {values_of<T>(out.detach()), values_of<T>(leaf.grad())};
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PoolKernels, Types);

TYPED_TEST(PoolKernels, HaveTheValuesOfOneAfterTheOther) {
  using T = TypeParam;
  for (const auto& s : std::vector<PoolShape>{
           {2, 3, 24, 24}, {5, 1, 7, 9}, {3, 4, 2, 2}, {1, 5, 3, 40}, {2, 70, 5, 4}}) {
    for (const bool relu : {false, true}) {
      for (const double p : {-1.0, 0.0, 0.25, 0.999}) {
        SCOPED_TRACE(std::to_string(s.height) + ", p " + std::to_string(p));
        const ReluAndDropout options{
            relu, p < 0 ? nullptr : &kPlace, kLayer, p < 0 ? 0 : p};
        const auto in = ragged<T>(s.images * s.channels * s.height * s.width, 7);
        const auto grad_out = ragged<T>(s.images * s.outputs(), 3);
        const auto [out, grad_in] = this->expected(s, options, in, grad_out);
        in_orders([&, &out = out, &grad_in = grad_in] {
          std::vector<T> found(out.size(), T(7));
          cuda::max_pool(s, options, in.data(), found.data(), nullptr);
          EXPECT_EQ(found, out);
          std::vector<T> gradient(in.size(), T(7));
          cuda::max_pool_backward(
              s, options, in.data(), grad_out.data(), gradient.data(), nullptr);
          EXPECT_EQ(gradient, grad_in);
        });
      }
    }
  }
}

TYPED_TEST(PoolKernels, PassOnNans) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const bool relu : {false, true}) {
    const std::vector<T> in{1, nan, 2, 3};
    const T grad_out = 5;
    T out = 0;
    std::vector<T> grad_in(4, 7);
    const PoolShape shape{1, 1, 2, 2};
    cuda::max_pool(shape, {relu}, in.data(), &out, nullptr);
    EXPECT_TRUE(std::isnan(out));
    cuda::max_pool_backward(
        shape, {relu}, in.data(), &grad_out, grad_in.data(), nullptr);
    EXPECT_EQ(grad_in, (std::vector<T>{0, 5, 0, 0}));
  }
}

TEST(Pool, RefusesWhatItCannotCompute) {
  const auto refusal = [](const PoolShape& shape) {
    return error_of<ConfigError>(
        [&] { cuda::max_pool<float>(shape, {}, nullptr, nullptr, nullptr); });
  };
  EXPECT_THAT(refusal({1, 1, 1, 2}), HasSubstr("images of 1x1x2"));
  EXPECT_THAT(refusal({1, 1, 2, 1}), HasSubstr("2x2 at least"));
  EXPECT_THAT(refusal({1, 1 << 20, 64, 64}), HasSubstr("2^31"));
  EXPECT_EQ(refusal({0, 1, 2, 2}), "(no error)");
}

}  // namespace tandem::pool_test
