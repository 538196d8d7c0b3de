#include "tandem/graph/interpreter.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tandem/base/error.h"
#include "tandem/graph/named_errors.h"
#include "tandem/model/graph_model.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::interpreter_test {

ForwardContext context_of(bool training, int64_t first_position = 0) {
  ForwardContext context = in_mode(training);
  context.samples = {7, 1, first_position, 1};
  return context;
}

TEST(Interpreter, SizesFollowTheBatch) {
  GraphBuilder builder({2, 6});
  // x.view(N * 2, 6).view(N, 12)
  const auto split = builder.add(
      "aten::view", "",
      {Argument::of_value(builder.input()),
       Argument::of_list({Argument::of_size({0, 2}), Argument::of_size({6, 0})})},
      {{0, 2}, {6, 0}});
  builder.call(
      "aten::view", "",
      {Argument::of_value(split),
       Argument::of_list({Argument::of_size({0, 1}), Argument::of_size({12, 0})})},
      {12});
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  for (const int64_t samples : {1, 3, 8}) {
    const auto x = waves({samples, 2, 6});
    EXPECT_TRUE(interpreter.run(x, {}).equal(x.view({samples, 12})));
  }
}

// chunk() returns a list, of which the graph uses the first and the third tensor.
TEST(Interpreter, ListsAreInputsAndOutputs) {
  GraphBuilder builder({6});
  const std::vector<ValueId> parts = {
      builder.output("p0", batch_shape({2})), builder.output("p2", batch_shape({2}))};
  add_node(
      builder.graph(), "aten::chunk", "",
      {Argument::of_value(builder.input()), Argument::of(int64_t{3}),
       Argument::of(int64_t{1})},
      {parts[0], -1, parts[1]});
  builder.call(
      "aten::cat", "",
      {Argument::of_list({Argument::of_value(parts[1]), Argument::of_value(parts[0])}),
       Argument::of(int64_t{1})},
      {4});
  verify(builder.graph());
  const auto x = waves({3, 6});
  const auto y = Interpreter(builder.graph(), {}).run(x, {});
  EXPECT_TRUE(y.narrow(1, 0, 2).equal(x.narrow(1, 4, 2)));
  EXPECT_TRUE(y.narrow(1, 2, 2).equal(x.narrow(1, 0, 2)));
}

struct Norm {
  at::Tensor weight = waves({3});
  at::Tensor bias = waves({3}).neg();
  at::Tensor mean = at::zeros({3}, at::kDouble);
  at::Tensor variance = at::ones({3}, at::kDouble);
  at::Tensor count = at::zeros({}, at::kLong);
};

// Batch norm of a file that was exported for training, with a momentum of its own.
Graph batch_norm_graph(const Norm& norm) {
  GraphBuilder builder({3, 4, 4});
  const auto count =
      builder.state("num_batches_tracked", norm.count, ValueKind::buffer);
  add_node(
      builder.graph(), "aten::add_", "Scalar",
      {Argument::of_value(count), Argument::of(int64_t{1})}, {});
  builder.call(
      "aten::batch_norm", "",
      {Argument::of_value(builder.input()),
       Argument::of_value(builder.state("weight", norm.weight)),
       Argument::of_value(builder.state("bias", norm.bias)),
       Argument::of_value(builder.state("running_mean", norm.mean, ValueKind::buffer)),
       Argument::of_value(
           builder.state("running_var", norm.variance, ValueKind::buffer)),
       Argument::of(true), Argument::of(0.3), Argument::of(1e-3), Argument::of(false)},
      {3, 4, 4});
  verify(builder.graph());
  return builder.graph();
}

TEST(Interpreter, BatchNormFollowsTheModeOfTheRun) {
  const Norm norm;
  const Norm expected;
  const Graph graph = batch_norm_graph(norm);
  Interpreter interpreter(graph, {});
  const auto x = waves({2, 3, 4, 4});
  const auto by_hand = [&](bool training) {
    return at::batch_norm(
        x, expected.weight, expected.bias, expected.mean, expected.variance, training,
        0.3, 1e-3, false);
  };
  EXPECT_TRUE(interpreter.run(x, context_of(false)).equal(by_hand(false)));
  EXPECT_EQ(norm.count.item<int64_t>(), 0);
  EXPECT_TRUE(interpreter.run(x, context_of(true)).equal(by_hand(true)));
  EXPECT_EQ(norm.count.item<int64_t>(), 1);
  EXPECT_TRUE(norm.mean.equal(expected.mean));
  EXPECT_FALSE(norm.mean.equal(at::zeros({3}, at::kDouble)));
}

// One rank's samples, stacked with those of a rank that has the same samples.
TEST(Interpreter, BatchNormCanUseTheStatisticsOfAllRanks) {
  const Norm norm;
  const Graph graph = batch_norm_graph(norm);
  int calls = 0;
  Interpreter interpreter(graph, [&](const at::Tensor& mine) {
    ++calls;
    return at::stack({mine, mine});
  });
  interpreter.run(waves({2, 3, 4, 4}), context_of(true));
  EXPECT_EQ(calls, 1);
}

// Heads of attention are rows of one sample: [N * 2, 5].
TEST(Interpreter, DropoutMasksBelongToSamples) {
  GraphBuilder builder({2, 5});
  const auto flat = builder.add(
      "aten::flatten", "using_ints",
      {Argument::of_value(builder.input()), Argument::of(int64_t{0}),
       Argument::of(int64_t{1})},
      {{0, 2}, {5, 0}});
  builder.add(
      "aten::dropout", "",
      {Argument::of_value(flat), Argument::of(0.5), Argument::of(true)},
      {{0, 2}, {5, 0}});
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  const auto x = at::ones({6, 2, 5}, at::kDouble);
  const auto whole = interpreter.run(x, context_of(true));
  EXPECT_FALSE(whole.equal(x.flatten(0, 1)));
  // The samples from position 2 on, as another rank or a resumed run has them.
  const auto part = interpreter.run(x.narrow(0, 2, 4), context_of(true, 2));
  EXPECT_TRUE(part.equal(whole.narrow(0, 4, 8)));
  EXPECT_TRUE(interpreter.run(x, context_of(false)).equal(x.flatten(0, 1)));
}

Graph attention_graph(double dropout, bool causal) {
  GraphBuilder builder({2, 5, 4});
  const auto x = Argument::of_value(builder.input());
  builder.call(
      "aten::scaled_dot_product_attention", "",
      {x, x, x, Argument::of(c10::IValue()), Argument::of(dropout),
       Argument::of(causal)},
      {2, 5, 4});
  verify(builder.graph());
  return builder.graph();
}

TEST(Interpreter, ComputesAttention) {
  const auto x = waves({3, 2, 5, 4});
  for (const bool causal : {false, true}) {
    auto scores = at::matmul(x, x.transpose(-2, -1)) / std::sqrt(4.0);
    if (causal) {
      scores = scores.masked_fill(
          at::ones({5, 5}, at::kBool).triu(1),
          -std::numeric_limits<double>::infinity());
    }
    const auto expected = at::matmul(at::softmax(scores, -1), x);
    const Graph graph = attention_graph(0.5, causal);
    const auto found = Interpreter(graph, {}).run(x, context_of(false));
    EXPECT_TRUE(found.allclose(expected, 1e-12, 1e-12));
  }
}

TEST(Interpreter, DropoutInAttentionDependsOnPositionsOnly) {
  const Graph graph = attention_graph(0.4, false);
  Interpreter interpreter(graph, {});
  const auto x = waves({6, 2, 5, 4});
  const auto whole = interpreter.run(x, context_of(true));
  EXPECT_FALSE(whole.allclose(interpreter.run(x, context_of(false))));
  const auto part = interpreter.run(x.narrow(0, 3, 3), context_of(true, 3));
  EXPECT_TRUE(part.allclose(whole.narrow(0, 3, 3), 1e-12, 1e-12));
}

TEST(Interpreter, DropoutInAttentionCanBeTurnedOff) {
  Graph graph = attention_graph(0.4, false);
  turn_dropout_off(graph);
  Interpreter interpreter(graph, {});
  const auto x = waves({6, 2, 5, 4});
  const auto trained = interpreter.run(x, context_of(true));
  EXPECT_TRUE(trained.allclose(interpreter.run(x, context_of(false)), 1e-12, 1e-12));
}

// A ReLU overwrites the output of a linear layer, but not a value with other uses.
TEST(Interpreter, ReluOverwritesOnlyValuesWithoutOtherUses) {
  GraphBuilder builder({3});
  const auto h = builder.linear(builder.input(), "a", waves({4, 3}));
  const auto r = builder.call("aten::relu", "", {Argument::of_value(h)}, {4});
  const auto once = builder.graph();
  builder.call(
      "aten::sub", "Tensor", {Argument::of_value(h), Argument::of_value(r)}, {4});
  const auto twice = builder.graph();
  const auto x = waves({5, 3});
  const auto expected = at::matmul(x, waves({4, 3}).t());
  std::vector<const void*> memory;
  auto context = context_of(true);
  context.after_node = [&](const Node&, const at::Tensor& output) {
    memory.push_back(output.data_ptr());
  };
  const auto relu = Interpreter(once, {}).run(x, context);
  EXPECT_TRUE(relu.allclose(expected.relu(), 1e-12, 1e-12));
  EXPECT_EQ(memory[0], memory[1]);
  memory.clear();
  const auto difference = Interpreter(twice, {}).run(x, context);
  EXPECT_TRUE(difference.allclose(expected - expected.relu(), 1e-12, 1e-12));
  EXPECT_NE(memory[0], memory[1]);
}

TEST(Interpreter, FrozenBatchNormNeverUsesTheBatch) {
  const Norm norm;
  Graph graph = batch_norm_graph(norm);
  graph.nodes[1].arguments[5] = Argument::of(false);
  Interpreter interpreter(graph, {});
  const auto x = waves({2, 3, 4, 4});
  const auto trained = interpreter.run(x, context_of(true));
  EXPECT_TRUE(trained.equal(interpreter.run(x, context_of(false))));
  EXPECT_TRUE(norm.mean.equal(at::zeros({3}, at::kDouble)));
}

// Adds the mean of three features over the batch.
ValueId mean_of_batch(GraphBuilder& builder) {
  return builder.add(
      "aten::mean", "dim",
      {Argument::of_value(builder.input()), Argument::of(std::vector<int64_t>{0})},
      fixed_shape({3}));
}

// mean.mul_(0.9).add_(x.mean(0)); x - mean
TEST(Interpreter, OnlyTrainingChangesABuffer) {
  GraphBuilder builder({3});
  const auto mean = at::ones({3}, at::kDouble);
  const auto buffer = builder.state("mean", mean, ValueKind::buffer);
  const auto scaled = builder.add(
      "aten::mul_", "Scalar", {Argument::of_value(buffer), Argument::of(0.9)},
      fixed_shape({3}));
  const auto of_batch = mean_of_batch(builder);
  const auto moved = builder.add(
      "aten::add_", "Tensor",
      {Argument::of_value(scaled), Argument::of_value(of_batch)}, fixed_shape({3}));
  builder.call(
      "aten::sub", "Tensor",
      {Argument::of_value(builder.input()), Argument::of_value(moved)}, {3});
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  const auto x = waves({4, 3});
  EXPECT_TRUE(interpreter.run(x, context_of(false)).equal(x - 1));
  EXPECT_TRUE(mean.equal(at::ones({3}, at::kDouble)));
  const auto expected = x.mean(0).add(0.9);
  EXPECT_TRUE(
      interpreter.run(x, context_of(true)).allclose(x - expected, 1e-12, 1e-12));
  EXPECT_TRUE(mean.allclose(expected, 1e-12, 1e-12));
}

// buffer[0].copy_(x.mean(0)); x + buffer[0]
TEST(Interpreter, OnlyTrainingChangesABufferThroughAView) {
  GraphBuilder builder({3});
  const auto rows = at::zeros({2, 3}, at::kDouble);
  const auto buffer = builder.state("rows", rows, ValueKind::buffer);
  const auto row = builder.add(
      "aten::select", "int",
      {Argument::of_value(buffer), Argument::of(int64_t{0}), Argument::of(int64_t{0})},
      fixed_shape({3}));
  const auto of_batch = mean_of_batch(builder);
  const auto copied = builder.add(
      "aten::copy_", "", {Argument::of_value(row), Argument::of_value(of_batch)},
      fixed_shape({3}));
  builder.call(
      "aten::add", "Tensor",
      {Argument::of_value(builder.input()), Argument::of_value(copied)}, {3});
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  const auto x = waves({4, 3});
  EXPECT_TRUE(interpreter.run(x, context_of(false)).equal(x));
  EXPECT_TRUE(rows.equal(at::zeros({2, 3}, at::kDouble)));
  EXPECT_TRUE(interpreter.run(x, context_of(true)).equal(x + x.mean(0)));
  EXPECT_TRUE(rows[0].equal(x.mean(0)));
}

// scratch.copy_(x.mean(0)); x + scratch
TEST(Interpreter, EvaluationComputesInACopyOfAScratchBuffer) {
  for (const auto kind : {ValueKind::buffer, ValueKind::constant}) {
    GraphBuilder builder({3});
    const auto memory = at::zeros({3}, at::kDouble);
    const auto scratch = builder.state("scratch", memory, kind);
    const auto of_batch = mean_of_batch(builder);
    const auto copied = builder.add(
        "aten::copy_", "", {Argument::of_value(scratch), Argument::of_value(of_batch)},
        fixed_shape({3}));
    builder.call(
        "aten::add", "Tensor",
        {Argument::of_value(builder.input()), Argument::of_value(copied)}, {3});
    verify(builder.graph());
    const auto x = waves({4, 3});
    const auto found = Interpreter(builder.graph(), {}).run(x, context_of(false));
    EXPECT_TRUE(found.equal(x + x.mean(0)));
    EXPECT_TRUE(memory.equal(at::zeros({3}, at::kDouble)));
  }
}

TEST(Interpreter, ChangesOfTheInputDoNotReachTheData) {
  GraphBuilder builder({3});
  builder.call("aten::relu_", "", {Argument::of_value(builder.input())}, {3});
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  const auto x = waves({4, 3});
  for (const bool training : {false, true}) {
    EXPECT_TRUE(interpreter.run(x, context_of(training)).equal(x.relu()));
    EXPECT_TRUE(x.equal(waves({4, 3})));
  }
}

// The exporting PyTorch wrote no contiguous(), because its transpose() was contiguous.
TEST(Interpreter, ViewsDoNotDependOnStrides) {
  GraphBuilder builder({2, 3});
  const auto turned = builder.call(
      "aten::transpose", "int",
      {Argument::of_value(builder.input()), Argument::of(int64_t{1}),
       Argument::of(int64_t{2})},
      {3, 2});
  builder.call(
      "aten::view", "",
      {Argument::of_value(turned),
       Argument::of_list({Argument::of_size({0, 1}), Argument::of_size({6, 0})})},
      {6});
  verify(builder.graph());
  const auto x = waves({4, 2, 3});
  EXPECT_TRUE(Interpreter(builder.graph(), {})
                  .run(x, context_of(true))
                  .equal(x.transpose(1, 2).reshape({4, 6})));
}

TEST(Interpreter, ErrorsOfOperatorsNameTheNode) {
  GraphBuilder builder({3});
  builder.call(
      "aten::select", "int",
      {Argument::of_value(builder.input()), Argument::of(int64_t{1}),
       Argument::of(int64_t{5})},
      {});
  builder.graph().nodes[0].source = "net.py:9: x[:, 5]";
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  EXPECT_THAT(
      error_of<Error>([&] {
        interpreter.run(waves({4, 3}), context_of(true));
      }),
      testing::StartsWith("[model] select_0 (net.py:9: x[:, 5]) fails: "));
}

// LibTorch throws std::runtime_error for a name of a dimension. Newer ones have no
// names.
TEST(Interpreter, OtherErrorsOfOperatorsNameTheNode) {
  if (!c10::Dispatcher::singleton().findSchema({"aten::argsort", "dimname"})) {
    GTEST_SKIP() << "LibTorch has no names of dimensions";
  }
  GraphBuilder builder({3});
  builder.call(
      "aten::argsort", "dimname",
      {Argument::of_value(builder.input()), Argument::of(std::string("floor")),
       Argument::of(false)},
      {3});
  verify(builder.graph());
  Interpreter interpreter(builder.graph(), {});
  EXPECT_THAT(
      error_of<Error>([&] {
        interpreter.run(waves({4, 3}), context_of(true));
      }),
      testing::StartsWith("[model] argsort_0 fails: "));
}

// An operator of LibTorch may also throw, for example, std::length_error.
TEST(NamedErrors, AlsoNameErrorsThatAreNotLibTorchs) {
  EXPECT_EQ(
      error_of<Error>([] {
        with_named_errors(
            [] { throw std::length_error("too many"); }, [] { return "add_0 fails"; });
      }),
      "[model] add_0 fails: too many; change this line of the model or its input");
}

TEST(Interpreter, LiftedParametersKeepTheirGradients) {
  for (const char* name : {"aten::lift", "aten::lift_fresh"}) {
    GraphBuilder builder({3});
    const auto weight = waves({3}).set_requires_grad(true);
    const auto parameter = builder.state("weight", weight);
    const auto lifted =
        builder.add(name, "", {Argument::of_value(parameter)}, fixed_shape({3}));
    builder.call(
        "aten::mul", "Tensor",
        {Argument::of_value(builder.input()), Argument::of_value(lifted)}, {3});
    verify(builder.graph());
    const auto x = waves({4, 3});
    Interpreter(builder.graph(), {}).run(x, context_of(true)).sum().backward();
    EXPECT_TRUE(weight.is_leaf());
    EXPECT_TRUE(weight.grad().allclose(x.sum(0))) << name;
  }
}

TEST(Interpreter, ShapesOfTheFileHold) {
  GraphBuilder builder({3});
  builder.call("aten::relu", "", {Argument::of_value(builder.input())}, {4});
  const auto x = waves({2, 3});
  Interpreter(builder.graph(), {}).run(x, context_of(true));
  builder.graph().states_shapes = true;
  EXPECT_THAT(
      error_of<ConfigError>(
          [&] { Interpreter(builder.graph(), {}).run(x, context_of(true)); }),
      testing::HasSubstr("relu_0 computes the shape [2, 3], expected [N, 4]"));
}

TEST(Interpreter, LimitsOfTheFileHold) {
  GraphBuilder builder({3});
  builder.call("aten::relu", "", {Argument::of_value(builder.input())}, {3});
  builder.graph().max_samples = 4;
  Interpreter interpreter(builder.graph(), {});
  interpreter.run(waves({4, 3}), context_of(true));
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        interpreter.run(waves({5, 3}), context_of(true));
      }),
      testing::HasSubstr("a batch has 5 samples, expected at most 4"));
}

TEST(Interpreter, ComputesOperatorsThatLibTorchLacks) {
  const auto x = waves({3, 4, 5});
  GraphBuilder norm({4, 5});
  const auto weight = waves({5});
  norm.call(
      "aten::rms_norm", "",
      {Argument::of_value(norm.input()), Argument::of(std::vector<int64_t>{5}),
       Argument::of_value(norm.state("weight", weight)), Argument::of(1e-3)},
      {4, 5});
  const auto expected = x / (x.square().mean(2, true) + 1e-3).sqrt() * weight;
  const auto found = Interpreter(norm.graph(), {}).run(x, context_of(true));
  EXPECT_TRUE(found.allclose(expected, 1e-12, 1e-12));

  GraphBuilder shuffle({4, 5});
  shuffle.call(
      "aten::channel_shuffle", "",
      {Argument::of_value(shuffle.input()), Argument::of(int64_t{2})}, {4, 5});
  const auto shuffled = Interpreter(shuffle.graph(), {}).run(x, context_of(true));
  EXPECT_TRUE(shuffled.select(1, 1).equal(x.select(1, 2)));
}

// Instance norm with running statistics.
TEST(Interpreter, InstanceNormFollowsTheModeOfTheRun) {
  const Norm norm;
  GraphBuilder builder({3, 4});
  builder.call(
      "aten::instance_norm", "",
      {Argument::of_value(builder.input()), Argument::of(c10::IValue()),
       Argument::of(c10::IValue()),
       Argument::of_value(builder.state("running_mean", norm.mean, ValueKind::buffer)),
       Argument::of_value(
           builder.state("running_var", norm.variance, ValueKind::buffer)),
       Argument::of(true), Argument::of(0.3), Argument::of(1e-3), Argument::of(false)},
      {3, 4});
  Interpreter interpreter(builder.graph(), {});
  const auto x = waves({2, 3, 4});
  const auto evaluated = interpreter.run(x, context_of(false));
  EXPECT_TRUE(evaluated.allclose(x / std::sqrt(1 + 1e-3), 1e-12, 1e-12));
  EXPECT_TRUE(norm.mean.equal(at::zeros({3}, at::kDouble)));
  interpreter.run(x, context_of(true));
  EXPECT_TRUE(norm.mean.allclose(0.3 * x.mean(2).mean(0), 1e-12, 1e-12));
}

}  // namespace tandem::interpreter_test
