// The products of transformed tiles against convolutions in double precision.

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tandem/kernels/isa.h"
#include "tandem/kernels/winograd_loops.h"

namespace tandem {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  const char* name;
  WinogradShape shape;
};

void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

at::Tensor numbers(const std::vector<int64_t>& dims, double first) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    count *= dim;
  }
  return (at::linspace(0, 700, count, at::kDouble) + first).sin().view(dims);
}

// Images as float32 in blocks of 16 channels, and back.
at::Tensor blocked(const at::Tensor& x) {
  return x.view({x.size(0), x.size(1) / 16, 16, x.size(2), x.size(3)})
      .permute({0, 1, 3, 4, 2})
      .to(at::kFloat)
      .contiguous();
}
at::Tensor plain(const at::Tensor& x) {
  return x.permute({0, 1, 4, 2, 3})
      .reshape({x.size(0), x.size(1) * 16, x.size(2), x.size(3)})
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

// Of the largest element, or of what it is the sum of.
void expect_close(
    const at::Tensor& found, const at::Tensor& expected, double magnitude = 0) {
  const double largest = std::max(magnitude, expected.abs().max().item<double>());
  EXPECT_LE((found - expected).abs().max().item<double>(), 5e-6 * largest);
}

class Winograd : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (kernel_isa() != Isa::avx512) {
      GTEST_SKIP()
          << "no AVX-512 here, or ONEDNN_MAX_CPU_ISA forbids it; scripts/test on a "
             "CPU that has it";
    }
    input_.requires_grad_();
    weight_.requires_grad_();
    bias_.requires_grad_();
    output_ = at::conv2d(input_, weight_, bias_, 1, s_.padding);
    grad_ = numbers(output_.sizes().vec(), 5);
    output_.backward(grad_);
  }

  // What the products take for the weights, with NaN where nothing was written.
  at::Tensor factors(bool backward) const {
    const auto to = at::full({s_.points()}, kNan);
    const auto weight = weight_.detach().to(at::kFloat).contiguous();
    avx512::winograd_weights(
        s_.in_channels, s_.out_channels, data(weight), backward, data(to));
    return to;
  }

  WinogradShape s_ = GetParam().shape;
  at::Tensor input_ = numbers({s_.images, s_.in_channels, s_.height, s_.width}, 0);
  at::Tensor weight_ = numbers({s_.out_channels, s_.in_channels, 3, 3}, 1);
  at::Tensor bias_ = numbers({s_.out_channels}, 2);
  at::Tensor output_;
  at::Tensor grad_;
  at::Tensor scratch_ = at::full({winograd_scratch(s_)}, kNan);
};

TEST_P(Winograd, Output) {
  const auto in = blocked(input_.detach());
  const auto bias = bias_.detach().to(at::kFloat);
  const auto out = unwritten(blocked(output_.detach()));
  for (const bool relu : {false, true}) {
    // In two parts, as two threads would.
    const int64_t half = s_.tiles() / 2;
    for (const auto& [first, last] :
         {std::pair(int64_t{0}, half), std::pair(half, s_.tiles())}) {
      avx512::winograd_convolve(
          s_, first, last, data(in), data(factors(false)), data(bias), relu, data(out),
          data(scratch_));
    }
    const auto expected = output_.detach();
    expect_close(plain(out), relu ? expected.clamp_min(0) : expected);
  }
}

TEST_P(Winograd, InputsGradient) {
  const WinogradShape back = {s_.images,      s_.out_channels, s_.out_height(),
                              s_.out_width(), 2 - s_.padding,  s_.in_channels};
  const auto grad = blocked(grad_);
  const auto grad_input = unwritten(blocked(input_.detach()));
  avx512::winograd_convolve(
      back, 0, back.tiles(), data(grad), data(factors(true)), nullptr, false,
      data(grad_input), data(scratch_));
  expect_close(plain(grad_input), input_.grad());
}

TEST_P(Winograd, ParametersGradients) {
  const auto in = blocked(input_.detach());
  const auto grad = blocked(grad_);
  const auto sums = zeros(s_.points());
  const auto bias_grad = zeros(s_.out_channels);
  avx512::winograd_gradient(
      s_, 0, s_.tiles(), data(in), data(grad), data(sums), data(bias_grad),
      data(scratch_));
  expect_close(
      bias_grad.to(at::kDouble), bias_.grad(),
      grad_.abs().sum(at::IntArrayRef{0, 2, 3}).max().item<double>());
  auto weight_grad = at::full(weight_.sizes(), kNan);
  for (const int times : {1, 2}) {
    avx512::winograd_finish(
        s_.in_channels, s_.out_channels, data(sums), times > 1, data(weight_grad));
    expect_close(weight_grad.to(at::kDouble), weight_.grad() * times);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Winograd,
    testing::Values(
        Case{"one_tile", {1, 16, 6, 6, 0, 16}},
        Case{"smaller_than_a_tile", {1, 16, 3, 5, 0, 80}},
        Case{"of_net", {3, 32, 26, 26, 0, 64}}, Case{"padded", {1, 32, 9, 13, 1, 48}},
        Case{"padded_by_two", {3, 48, 7, 6, 2, 16}},
        Case{"more_tiles_than_a_run", {2, 64, 34, 23, 1, 32}}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace tandem
