// Winograd's kernels against convolutions in double precision.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/kernels/isa.h"
#include "tandem/kernels/winograd_loops.h"

namespace tandem::winograd_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Target {
  const char* name;
  Isa isa;
  const WinogradKernels* kernels;
};

struct Case {
  const char* name;
  WinogradShape shape;
};

using Row = std::tuple<Target, Case>;

std::string name_of(const testing::TestParamInfo<Row>& row) {
  return std::string(std::get<0>(row.param).name) + "_" + std::get<1>(row.param).name;
}

// Returns numbers whose neighbors are unrelated, so that their sums do not cancel.
at::Tensor numbers(const std::vector<int64_t>& dims, double first) {
  const int64_t count = c10::multiply_integers(dims);
  return (at::arange(count, at::kDouble) + first).square().sin().view(dims);
}

at::Tensor plain(const at::Tensor& x) {
  return x.permute({0, 1, 4, 2, 3})
      .reshape({x.size(0), x.size(1) * x.size(4), x.size(2), x.size(3)})
      .to(at::kDouble);
}

at::Tensor unwritten(const at::Tensor& like) {
  return at::full(like.sizes(), kNan);
}
at::Tensor zeros(int64_t count) {
  return at::full({count}, 0.0F);
}
float* data(const at::Tensor& x) {
  return x.data_ptr<float>();
}

// Expects errors below 5e-6 of the largest element, or of `magnitude` if that is
// larger.
void expect_close(
    const at::Tensor& found, const at::Tensor& expected, double magnitude = 0) {
  const double largest = std::max(magnitude, expected.abs().max().item<double>());
  EXPECT_LE((found - expected).abs().max().item<double>(), 5e-6 * largest);
}

class Winograd : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    const Target& target = std::get<0>(GetParam());
    if (kernel_isa() < target.isa) {
      GTEST_SKIP() << "no " << target.name
                   << " here, or ONEDNN_MAX_CPU_ISA forbids it; "
                      "scripts/test on a CPU that has it";
    }
    input_.requires_grad_();
    weight_.requires_grad_();
    bias_.requires_grad_();
    output_ = at::conv2d(input_, weight_, bias_, 1, s_.padding);
    grad_ = numbers(output_.sizes().vec(), 5);
    output_.backward(grad_);
  }

  // Returns images as float32 in blocks of channels.
  at::Tensor blocked(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1) / k_.block, k_.block, x.size(2), x.size(3)})
        .permute({0, 1, 3, 4, 2})
        .to(at::kFloat)
        .contiguous();
  }

  // Returns the transformed weights; elements that were not written are NaN.
  at::Tensor factors(bool backward) const {
    const auto to = at::full({s_.points()}, kNan);
    const auto weight = weight_.detach().to(at::kFloat).contiguous();
    k_.weights(s_, data(weight), backward, data(to));
    return to;
  }

  const WinogradKernels& k_ = *std::get<0>(GetParam()).kernels;
  WinogradShape s_ = std::get<1>(GetParam()).shape;
  at::Tensor input_ = numbers({s_.images, s_.in_channels, s_.height, s_.width}, 0);
  at::Tensor weight_ =
      numbers({s_.out_channels, s_.in_channels, s_.kernel, s_.kernel}, 1);
  at::Tensor bias_ = numbers({s_.out_channels}, 2);
  at::Tensor output_;
  at::Tensor grad_;
  at::Tensor scratch_ = at::full({k_.scratch(s_)}, kNan);
};

TEST_P(Winograd, Output) {
  const auto in = blocked(input_.detach());
  const auto bias = bias_.detach().to(at::kFloat);
  const auto out = unwritten(blocked(output_.detach()));
  for (const bool relu : {false, true}) {
    // Two parts, as with two threads.
    const int64_t half = s_.tiles() / 2;
    for (const auto& [first, last] :
         {std::pair(int64_t{0}, half), std::pair(half, s_.tiles())}) {
      k_.convolve(
          s_, first, last, data(in), data(factors(false)), data(bias), relu, data(out),
          data(scratch_));
    }
    const auto expected = output_.detach();
    expect_close(plain(out), relu ? expected.clamp_min(0) : expected);
  }
}

TEST_P(Winograd, InputsGradient) {
  const WinogradShape back = {
      s_.images,
      s_.out_channels,
      s_.out_height(),
      s_.out_width(),
      s_.kernel - 1 - s_.padding,
      s_.in_channels,
      s_.kernel};
  const auto grad = blocked(grad_);
  const auto grad_input = unwritten(blocked(input_.detach()));
  k_.convolve(
      back, 0, back.tiles(), data(grad), data(factors(true)), nullptr, false,
      data(grad_input), data(scratch_));
  expect_close(plain(grad_input), input_.grad());
}

TEST_P(Winograd, ParametersGradients) {
  const auto in = blocked(input_.detach());
  const auto grad = blocked(grad_);
  const auto sums = zeros(s_.points());
  const auto bias_grad = zeros(s_.out_channels);
  k_.gradient(
      s_, 0, s_.tiles(), data(in), data(grad), data(sums), data(bias_grad),
      data(scratch_));
  expect_close(
      bias_grad.to(at::kDouble), bias_.grad(),
      grad_.abs().sum(at::IntArrayRef{0, 2, 3}).max().item<double>());
  auto weight_grad = at::full(weight_.sizes(), kNan);
  for (const int times : {1, 2}) {
    k_.finish(s_, data(sums), times > 1, data(weight_grad));
    expect_close(weight_grad.to(at::kDouble), weight_.grad() * times);
  }
}

#if defined(__aarch64__)
constexpr Target kBlocksOf8 = {"neon", Isa::neon, &neon::winograd};
constexpr Target kTargets[] = {kBlocksOf8};
#else
// A CPU with AVX-512 also runs the code for AVX2.
constexpr Target kBlocksOf8 = {"avx2", Isa::avx2, &avx2::winograd};
constexpr Target kTargets[] = {{"avx512", Isa::avx512, &avx512::winograd}, kBlocksOf8};
#endif

INSTANTIATE_TEST_SUITE_P(
    Shapes, Winograd,
    testing::Combine(
        testing::ValuesIn(kTargets),
        testing::Values(
            Case{"one_tile", {1, 16, 6, 6, 0, 16}},
            Case{"smaller_than_a_tile", {1, 16, 3, 5, 0, 80}},
            Case{"of_net", {3, 32, 26, 26, 0, 64}},
            Case{"padded", {1, 32, 9, 13, 1, 48}},
            Case{"padded_by_two", {3, 48, 7, 6, 2, 16}},
            Case{"more_tiles_than_a_run", {2, 64, 34, 23, 1, 32}},
            Case{"window_of_5", {2, 16, 14, 14, 0, 32, 5}},
            Case{"window_of_5_padded", {1, 32, 9, 13, 1, 48, 5}},
            Case{"window_of_5_of_convnet_bn", {3, 16, 14, 14, 2, 32, 5}},
            Case{"window_of_5_padded_by_four", {2, 48, 7, 5, 4, 16, 5}})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    BlocksOf8, Winograd,
    testing::Combine(
        testing::Values(kBlocksOf8),
        testing::Values(
            Case{"one_block", {2, 8, 11, 9, 0, 8}}, Case{"of_8", {2, 8, 11, 9, 0, 40}},
            Case{"padded", {3, 24, 5, 10, 1, 8}},
            Case{"padded_by_two", {1, 56, 14, 3, 2, 24}})),
    name_of);

}  // namespace tandem::winograd_test
