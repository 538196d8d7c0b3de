#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/model/model.h"
#include "tests/graph/graphs.h"

namespace tandem::layered_model_test {

using testing::ElementsAre;

ModelOptions double_options(uint64_t seed = 0) {
  ModelOptions options;
  options.seed = seed;
  options.dtype = at::kDouble;
  return options;
}

TEST(LayeredModel, EqualsPlainOperatorsForwardAndBackward) {
  const auto model = make_layered_model(
      {conv2d("c", 2, 3, 3, 1), relu(), max_pool2d(2), flatten(),
       linear("f", 3 * 3 * 2, 5), relu(), linear("g", 5, 4), log_softmax()},
      double_options(4));
  const auto own = model->parameters();
  std::vector<at::Tensor> copies;
  for (const auto& entry : own) {
    copies.push_back(entry.tensor.detach().clone().set_requires_grad(true));
  }
  const auto x = waves({2, 2, 7, 5}) * 3;
  auto y = at::max_pool2d(at::conv2d(x, copies[0], copies[1], 1, 1).relu(), 2);
  y = at::linear(y.flatten(1), copies[2], copies[3]).relu();
  y = at::log_softmax(at::linear(y, copies[4], copies[5]), 1);
  const auto output = model->forward(x, {});
  EXPECT_TRUE(output.equal(y));

  const auto weights = at::arange(8).to(at::kDouble).view({2, 4});
  (output * weights).sum().backward();
  (y * weights).sum().backward();
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_GT(copies[i].grad().abs().sum().item<double>(), 0) << own[i].name;
    EXPECT_TRUE(own[i].tensor.grad().equal(copies[i].grad())) << own[i].name;
  }
}

TEST(LayeredModel, DoesNotChangeItsInput) {
  const auto x = waves({2, 2, 3, 3});
  ASSERT_LT(x.min().item<double>(), 0);
  for (const bool flat : {false, true}) {
    std::vector<Layer> layers = {relu()};
    if (flat) {
      layers.insert(layers.begin(), flatten());
    }
    const auto output = make_layered_model(layers, double_options())->forward(x, {});
    EXPECT_EQ(output.min().item<double>(), 0);
    EXPECT_TRUE(x.equal(waves({2, 2, 3, 3})));
  }
}

// torch.manual_seed(3); model = ConvNet().double() of tutorial 004
// x = torch.linspace(-1, 2, 4 * 784, dtype=torch.float64).sin().view(4, 1, 28, 28)
// model(x); y = model(2 * x + 1); then model.eval()(x)
TEST(LayeredModel, BatchNormUpdatesStatisticsLikePythonInTrainingOnly) {
  const auto model = make_model(ModelKind::convnet_bn, double_options(3));
  const auto x = at::linspace(-1, 2, 4 * 784, at::kDouble).sin().view({4, 1, 28, 28});
  const auto expect_row = [](const at::Tensor& row,
                             const std::vector<double>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(row[static_cast<int64_t>(i)].item<double>(), expected[i], 1e-12);
    }
  };
  model->forward(x, {});
  const auto output = model->forward(x * 2 + 1, {});
  expect_row(output[3], {-0.0378481234744615, -0.826132462668128, -0.425674723949564});
  const auto buffers = model->buffers();
  expect_row(
      buffers[0].tensor, {-0.0853940538334188, -0.256991752651004, 0.0591449461775274});
  expect_row(
      buffers[1].tensor, {0.868496218351903, 1.20967055005581, 0.832206970210664});
  expect_row(
      buffers[3].tensor,
      {-0.00230762730148742, 0.0557478553070866, 0.0032884603552867});
  expect_row(
      buffers[4].tensor, {0.829970778152029, 0.85023761979562, 0.837911512266606});
  EXPECT_EQ(buffers[2].tensor.item<int64_t>(), 2);
  EXPECT_EQ(buffers[5].tensor.item<int64_t>(), 2);

  std::vector<at::Tensor> before;
  for (const auto& buffer : buffers) {
    before.push_back(buffer.tensor.clone());
  }
  expect_row(
      model->forward(x, in_mode(false))[3],
      {-0.0157553759147899, -0.0631191373558271, -0.0512112164356314});
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(model->buffers()[i].tensor.equal(before[i])) << buffers[i].name;
  }
}

TEST(LayeredModel, DropoutMultipliesByTheMaskOfItsLayer) {
  const auto model =
      make_layered_model({relu(), dropout(0.25), dropout(0.5)}, double_options());
  ForwardContext context;
  context.samples = {5, 6, 7, 2};
  const auto x = waves({3, 2, 4, 5}) + 2;
  const auto first = dropout_mask(context.samples, 1, 3, 40, 0.25, at::kDouble);
  const auto second = dropout_mask(context.samples, 2, 3, 40, 0.5, at::kDouble);
  EXPECT_TRUE(model->forward(x, context)
                  .equal(x * first.view(x.sizes()) * second.view(x.sizes())));
  EXPECT_TRUE(model->forward(x, in_mode(false)).equal(x));
}

TEST(LayeredModel, Dropout2dDropsWholeChannels) {
  const auto model = make_layered_model({dropout2d(0.5)}, double_options());
  ForwardContext context;
  context.samples = {1, 0, 0, 1};
  const auto output = model->forward(at::ones({4, 50, 3, 5}, at::kDouble), context);
  const auto sums = output.sum({2, 3});
  EXPECT_TRUE((sums.eq(0) + sums.eq(30)).all().item<bool>());
  const double dropped = sums.eq(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(dropped, 0.5, 0.16);  // 4.5 sigma
  EXPECT_FALSE(sums[0].equal(sums[1]));

  // For two-dimensional input it drops elements.
  const auto flat = model->forward(at::ones({4, 50}, at::kDouble), context);
  EXPECT_TRUE(flat.equal(dropout_mask(context.samples, 0, 4, 50, 0.5, at::kDouble)));
  const auto x = waves({4, 50, 3, 5});
  EXPECT_TRUE(model->forward(x, in_mode(false)).equal(x));
}

TEST(LayeredModel, WithoutDropoutTrainingEqualsEvaluation) {
  auto options = double_options(1);
  const auto x = waves({6, 1, 28, 28});
  for (const std::string name : {"net", "convnet", "net5x5"}) {
    options.dropout = true;
    const auto with = make_model(*find_choice<ModelKind>(name), options);
    options.dropout = false;
    const auto without = make_model(*find_choice<ModelKind>(name), options);
    const auto expected = with->forward(x, in_mode(false));
    EXPECT_FALSE(with->forward(x, {}).equal(expected)) << name;
    EXPECT_TRUE(without->forward(x, {}).equal(expected)) << name;
  }
}

TEST(LayeredModel, OutputsDoNotDependOnHowTheBatchIsDivided) {
  for (const std::string name : {"net", "convnet", "net5x5"}) {
    const auto model = make_model(*find_choice<ModelKind>(name), double_options(1));
    const auto x = waves({6, 1, 28, 28});
    ForwardContext context;
    context.samples = {9, 2, 30, 1};
    const auto whole = model->forward(x, context);
    const auto front = model->forward(x.narrow(0, 0, 2), context);
    context.samples.first_position = 32;
    const auto back = model->forward(x.narrow(0, 2, 4), context);
    EXPECT_TRUE(at::cat({front, back}).allclose(whole, 1e-13, 1e-14)) << name;
    context.samples.epoch = 3;
    EXPECT_FALSE(model->forward(x.narrow(0, 2, 4), context).allclose(back)) << name;
  }
}

TEST(LayeredModel, DoubleWeightsEqualFloatWeights) {
  ModelOptions options;
  options.seed = 12;
  const auto narrow = make_model(ModelKind::net5x5, options)->parameters();
  const auto wide = make_model(ModelKind::net5x5, double_options(12))->parameters();
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(wide[i].tensor.scalar_type(), at::kDouble);
    EXPECT_TRUE(wide[i].tensor.equal(narrow[i].tensor.to(at::kDouble)));
  }
}

TEST(LayeredModel, CallsAfterNodeWithEachNodeAndOutput) {
  const auto model = make_layered_model(
      {flatten(), linear("a", 6, 4), dropout(0.5), linear("b", 4, 2)},
      double_options());
  std::vector<std::pair<std::string, int64_t>> calls;
  ForwardContext context;
  context.after_node = [&](const Node& node, const at::Tensor& output) {
    calls.emplace_back(node.module, output.size(1));
  };
  model->forward(waves({2, 2, 3}), context);
  EXPECT_THAT(
      calls,
      ElementsAre(
          std::pair("", 6), std::pair("a", 4), std::pair("", 4), std::pair("b", 2)));
  ASSERT_NE(model->graph(), nullptr);
  EXPECT_EQ(model->graph()->nodes.size(), 4u);
}

TEST(FunctionModel, CallsSetTrainingWhenTheModeChanges) {
  auto scale = at::ones({1}, at::kDouble).set_requires_grad(true);
  std::vector<bool> calls;
  const auto model = make_function_model(
      [scale](const at::Tensor& x) { return x * scale; }, {{"scale", scale}}, {},
      [&calls](bool training) { calls.push_back(training); });
  EXPECT_EQ(model->graph(), nullptr);
  ASSERT_EQ(model->parameters().size(), 1u);
  EXPECT_TRUE(model->parameters()[0].tensor.is_same(scale));
  EXPECT_TRUE(model->buffers().empty());
  scale.detach().fill_(3);
  const auto x = waves({4});
  EXPECT_TRUE(model->forward(x, {}).equal(x * 3));
  model->forward(x, {});
  model->forward(x, in_mode(false));
  model->forward(x, in_mode(false));
  model->forward(x, {});
  EXPECT_THAT(calls, ElementsAre(true, false, true));
}

}  // namespace tandem::layered_model_test
