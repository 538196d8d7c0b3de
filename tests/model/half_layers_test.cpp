// Layers that round to float16, against the same calculation written out in double. In
// double the order of sums does not change rounded values.

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/model/model.h"
#include "tests/graph/graphs.h"

namespace tandem::half_layers_test {

using testing::ElementsAre;

at::Tensor half(const at::Tensor& x) {
  return x.to(at::kHalf).to(at::kDouble);
}

ModelOptions double_options() {
  ModelOptions options;
  options.seed = 3;
  options.dtype = at::kDouble;
  return options;
}

ForwardContext in_half(Rounding layers) {
  ForwardContext context;
  context.rounding = layers;
  return context;
}

// Values of a perceptron, forward and backward. Each value that a GPU stores is
// rounded.
struct Perceptron {
  Perceptron(
      const std::vector<NamedTensor>& p, const at::Tensor& x,
      const at::Tensor& grad_output) {
    const auto w1 = half(p[0].tensor.detach());
    const auto w2 = half(p[2].tensor.detach());
    const auto a = half(half(x).matmul(w1.t()) + half(p[1].tensor.detach()));
    const auto r = a.clamp_min(0);
    output = half(r.matmul(w2.t()) + half(p[3].tensor.detach()));
    const auto grad = half(grad_output);
    const auto grad_a = half(grad.matmul(w2)) * (a > 0);
    gradients = {
        half(grad_a.t().matmul(half(x))), half(grad_a.sum(0)), half(grad.t().matmul(r)),
        half(grad.sum(0))};
  }

  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

TEST(HalfLayers, RoundInputsAndOutputsForwardAndBackward) {
  const auto x = waves({6, 7}) * 3;
  for (const auto layers : {Rounding::fp16_o1, Rounding::fp16_o2}) {
    const auto model = make_layered_model(
        {linear("f", 7, 5), relu(), linear("g", 5, 4)}, double_options());
    const auto grad_output = waves({6, 4}) * 1000 / 3;
    const Perceptron expected(model->parameters(), x, grad_output);
    const auto output = model->forward(x, in_half(layers));
    EXPECT_TRUE(output.equal(expected.output));
    output.backward(grad_output);
    const auto parameters = model->parameters();
    for (size_t i = 0; i < 4; ++i) {
      const auto& parameter = parameters[i];
      EXPECT_TRUE(parameter.tensor.grad().equal(expected.gradients[i]))
          << parameter.name;
    }
    EXPECT_FALSE(output.equal(model->forward(x, {})));
  }
}

TEST(HalfLayers, GradientsOverflowBeyond65504) {
  const auto model = make_layered_model({linear("f", 7, 5)}, double_options());
  const auto output = model->forward(waves({6, 7}), in_half(Rounding::fp16_o1));
  output.backward(at::ones_like(output) * 30000);
  // The bias's gradient is 6 times 30,000.
  EXPECT_TRUE(model->parameters()[1].tensor.grad().isinf().all().item<bool>());
}

// Returns, for one layer of each kind, whether all outputs are float16 numbers.
std::vector<bool> rounding_layers(Rounding half_layers) {
  const auto model = make_layered_model(
      {conv2d("c", 2, 3, 3), batch_norm2d("b", 3), relu(), max_pool2d(2),
       dropout2d(0.3), flatten(), dropout(0.3), linear("g", 3 * 2 * 2, 4),
       log_softmax()},
      double_options());
  auto context = in_half(half_layers);
  std::vector<bool> rounded;
  context.after_node = [&](const Node&, const at::Tensor& output) {
    rounded.push_back(output.equal(half(output)));
  };
  model->forward(waves({4, 2, 6, 6}), context);
  return rounded;
}

TEST(HalfLayers, O1RoundsAllButLogSoftmaxAndO2RoundsAll) {
  EXPECT_THAT(rounding_layers(Rounding::none), testing::Each(false));
  EXPECT_THAT(
      rounding_layers(Rounding::fp16_o1),
      ElementsAre(true, true, true, true, true, true, true, true, false));
  EXPECT_THAT(rounding_layers(Rounding::fp16_o2), testing::Each(true));
}

TEST(HalfLayers, O2RoundsTheInputToo) {
  const auto x = waves({4, 2, 6, 6});
  const auto output_of = [&](Rounding layers, const at::Tensor& input) {
    return make_layered_model({max_pool2d(2)}, double_options())
        ->forward(input, in_half(layers));
  };
  EXPECT_TRUE(output_of(Rounding::fp16_o1, x).equal(output_of(Rounding::none, x)));
  EXPECT_TRUE(
      output_of(Rounding::fp16_o2, x).equal(output_of(Rounding::none, half(x))));
}

}  // namespace tandem::half_layers_test
