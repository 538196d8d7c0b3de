#include "tandem/graph/random_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/graph/interpreter.h"
#include "tandem/model/graph_model.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::random_operators_test {

ForwardContext context_of(
    bool training, int64_t first_position = 0, int64_t epoch = 1) {
  ForwardContext context = in_mode(training);
  context.samples = {7, epoch, first_position, 1, 0};
  return context;
}

at::Tensor run(const Graph& graph, const at::Tensor& x, const ForwardContext& context) {
  verify(graph);
  return Interpreter(graph, {}).run(x, context);
}

// A call of a random operator, whose result has the shape of the input [N, 500].
struct Draw {
  const char* name;
  const char* overload;
  // Arguments after the tensor; if there is none, the first argument is the shape.
  std::vector<Argument> arguments;
  bool takes_tensor;
  // Means in training and in evaluation.
  double mean = 0;
  double tolerance = 0;
  double evaluation = 0;
};

Graph graph_of(const Draw& draw) {
  GraphBuilder builder({500});
  std::vector<Argument> arguments = draw.arguments;
  if (draw.takes_tensor) {
    const auto empty = builder.call(
        "aten::zeros_like", "", {Argument::of_value(builder.input())}, {500});
    arguments.insert(arguments.begin(), Argument::of_value(empty));
  } else {
    arguments.push_back(
        Argument::of_list({Argument::of_size({0, 1}), Argument::of_size({500, 0})}));
  }
  builder.call(
      std::string("aten::") + draw.name, draw.overload, std::move(arguments), {500});
  return builder.graph();
}

void PrintTo(const Draw& draw, std::ostream* out) {
  *out << draw.name << "." << draw.overload;
}

class RandomOperator : public testing::TestWithParam<Draw> {};

TEST_P(RandomOperator, DrawsDependOnSeedEpochAndPosition) {
  const Graph graph = graph_of(GetParam());
  const auto x = at::zeros({40, 500}, at::kDouble);
  const auto whole = run(graph, x, context_of(true));
  EXPECT_NEAR(
      whole.to(at::kDouble).mean().item<double>(), GetParam().mean,
      GetParam().tolerance);
  const auto part = run(graph, x.narrow(0, 30, 10), context_of(true, 30));
  EXPECT_TRUE(part.equal(whole.narrow(0, 30, 10)));
  EXPECT_FALSE(part.equal(whole.narrow(0, 20, 10)));
  EXPECT_FALSE(run(graph, x, context_of(true, 0, 2)).equal(whole));
}

TEST_P(RandomOperator, EvaluationUsesTheMean) {
  const Graph graph = graph_of(GetParam());
  const auto x = at::zeros({40, 500}, at::kDouble);
  const auto found = run(graph, x, context_of(false)).to(at::kDouble);
  EXPECT_NEAR(found.mean().item<double>(), GetParam().evaluation, GetParam().tolerance);
  EXPECT_TRUE(found.equal(run(graph, x, context_of(false, 0, 2)).to(at::kDouble)));
}

INSTANTIATE_TEST_SUITE_P(
    All, RandomOperator,
    testing::Values(
        Draw{"bernoulli_", "float", {Argument::of(0.3)}, true, 0.3, 0.02, 0.3},
        Draw{"bernoulli", "p", {Argument::of(0.3)}, true, 0.3, 0.02, 0.3},
        Draw{"uniform_", "", {Argument::of(2.0), Argument::of(4.0)}, true, 3, 0.03, 3},
        Draw{"normal_", "", {Argument::of(1.0), Argument::of(2.0)}, true, 1, 0.06, 1},
        Draw{"exponential_", "", {Argument::of(2.0)}, true, 0.5, 0.02, 0.5},
        Draw{"geometric_", "", {Argument::of(0.25)}, true, 4, 0.15, 4},
        Draw{
            "log_normal_",
            "",
            {Argument::of(0.0), Argument::of(0.5)},
            true,
            std::exp(0.125),
            0.03,
            std::exp(0.125)},
        Draw{"rand_like", "", {}, true, 0.5, 0.02, 0.5},
        Draw{"randn_like", "", {}, true, 0, 0.03, 0},
        Draw{"rand", "", {}, false, 0.5, 0.02, 0.5},
        Draw{"randn", "", {}, false, 0, 0.03, 0},
        Draw{"randint", "", {Argument::of(int64_t{5})}, false, 2, 0.05, 2},
        Draw{
            "random_",
            "from",
            {Argument::of(int64_t{1}), Argument::of(int64_t{4})},
            true,
            2,
            0.05,
            2}));

TEST(RandomOperators, FollowTheirDistributions) {
  const auto x = at::zeros({40, 500}, at::kDouble);
  const auto normal =
      run(graph_of({"normal_", "", {Argument::of(0.0), Argument::of(1.0)}, true}), x,
          context_of(true));
  EXPECT_NEAR(normal.std().item<double>(), 1, 0.02);
  EXPECT_NEAR(normal.abs().lt(1).to(at::kDouble).mean().item<double>(), 0.6827, 0.01);
  const auto uniform = run(graph_of({"rand", "", {}, false}), x, context_of(true));
  EXPECT_NEAR(uniform.lt(0.25).to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_GT(uniform.min().item<double>(), 0);
  EXPECT_LT(uniform.max().item<double>(), 1);
}

// Stochastic depth with the mode "batch": all samples of a step have one draw.
TEST(RandomOperators, DrawsWithoutSamplesBelongToTheStep) {
  GraphBuilder builder({2});
  const auto noise = builder.add(
      "aten::randn", "", {Argument::of(std::vector<int64_t>{1})}, fixed_shape({1}));
  builder.call(
      "aten::add", "Tensor",
      {Argument::of_value(builder.input()), Argument::of_value(noise)}, {2});
  const auto x = at::zeros({3, 2}, at::kDouble);
  auto first = context_of(true, 0);
  auto second = context_of(true, 3);
  const auto found = run(builder.graph(), x, first);
  EXPECT_TRUE(run(builder.graph(), x, second).equal(found));
  second.samples.step_position = 3;
  EXPECT_FALSE(run(builder.graph(), x, second).equal(found));
}

TEST(RandomOperators, AlphaDropoutKeepsMeanAndVariance) {
  for (const std::string name :
       {"aten::alpha_dropout", "aten::feature_alpha_dropout"}) {
    GraphBuilder builder({500});
    builder.call(
        name, "",
        {Argument::of_value(builder.input()), Argument::of(0.3), Argument::of(true)},
        {500});
    const auto x =
        run(graph_of({"randn", "", {}, false}), at::zeros({40, 500}, at::kDouble),
            context_of(true));
    const auto found = run(builder.graph(), x, context_of(true, 5));
    EXPECT_NEAR(found.mean().item<double>(), 0, 0.03) << name;
    EXPECT_NEAR(found.std().item<double>(), 1, 0.03) << name;
    EXPECT_TRUE(run(builder.graph(), x, context_of(false)).equal(x));
  }
}

TEST(RandomOperators, MultinomialDrawsInProportion) {
  const auto weights = at::full({400, 3}, 1.0, at::kDouble);
  weights.select(1, 2).fill_(2);
  for (const bool replacement : {false, true}) {
    GraphBuilder builder({3});
    builder.call(
        "aten::multinomial", "",
        {Argument::of_value(builder.input()), Argument::of(int64_t{1}),
         Argument::of(replacement)},
        {1});
    const auto found = run(builder.graph(), weights, context_of(true));
    EXPECT_NEAR(found.eq(2).to(at::kDouble).mean().item<double>(), 0.5, 0.08);
    EXPECT_NEAR(found.eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.08);
  }
}

TEST(RandomOperators, PermutationsHaveEachIndexOnce) {
  GraphBuilder builder({2});
  builder.add("aten::randperm", "", {Argument::of(int64_t{50})}, fixed_shape({50}));
  builder.graph().values.back().dtype = at::kLong;
  const auto found = run(builder.graph(), at::zeros({1, 2}), context_of(true));
  EXPECT_TRUE(std::get<0>(found.sort()).equal(at::arange(50)));
  EXPECT_FALSE(found.equal(at::arange(50)));
}

// A network of two layers over 4 steps of 3 features, with 5 hidden features.
Graph recurrent(const std::string& name, int64_t gates, double dropout) {
  GraphBuilder builder({4, 3});
  std::vector<Argument> params;
  for (const int64_t in : {3, 5}) {
    const auto number = std::to_string(in);
    params.push_back(
        Argument::of_value(builder.state("w_ih" + number, waves({gates * 5, in}))));
    params.push_back(
        Argument::of_value(builder.state("w_hh" + number, waves({gates * 5, 5}))));
  }
  const auto state = Argument::of_value(builder.add(
      "aten::zeros", "",
      {Argument::of_list(
           {Argument::of_size({2, 0}), Argument::of_size({0, 1}),
            Argument::of_size({5, 0})}),
       Argument::of(static_cast<int64_t>(at::kDouble))},
      {{2, 0}, {0, 1}, {5, 0}}));
  const bool is_lstm = name == "aten::lstm";
  const auto output = builder.output("y", batch_shape({4, 5}));
  builder.graph().output = output;
  add_node(
      builder.graph(), name, "input",
      {Argument::of_value(builder.input()),
       is_lstm ? Argument::of_list({state, state}) : state, Argument::of_list(params),
       Argument::of(false), Argument::of(int64_t{2}), Argument::of(dropout),
       Argument::of(true), Argument::of(false), Argument::of(true)},
      is_lstm ? std::vector<ValueId>{output, -1, -1}
              : std::vector<ValueId>{output, -1});
  return builder.graph();
}

TEST(RandomOperators, DropoutBetweenRecurrentLayersDependsOnPositions) {
  const auto x = waves({6, 4, 3});
  for (const auto& [name, gates] :
       {std::pair{"aten::lstm", 4}, {"aten::gru", 3}, {"aten::rnn_tanh", 1}}) {
    const Graph graph = recurrent(name, gates, 0.4);
    const auto whole = run(graph, x, context_of(true));
    const auto part = run(graph, x.narrow(0, 2, 3), context_of(true, 2));
    EXPECT_TRUE(part.allclose(whole.narrow(0, 2, 3), 1e-12, 1e-12)) << name;
    const auto plain = run(recurrent(name, gates, 0), x, context_of(true));
    EXPECT_FALSE(whole.allclose(plain)) << name;
    EXPECT_TRUE(run(graph, x, context_of(false)).allclose(plain, 1e-12, 1e-12));
  }
}

// A tiny dropout drops nothing, but runs layer by layer.
TEST(RandomOperators, RecurrentLayersInTurnEqualLibTorch) {
  const auto x = waves({6, 4, 3});
  for (const auto& [name, gates] :
       {std::pair{"aten::lstm", 4}, {"aten::gru", 3}, {"aten::rnn_relu", 1}}) {
    const auto expected = run(recurrent(name, gates, 0), x, context_of(true));
    const auto found = run(recurrent(name, gates, 1e-9), x, context_of(true));
    EXPECT_TRUE(found.allclose(expected, 1e-8, 1e-8)) << name;
  }
}

TEST(RandomOperators, SchemasAndTagsDecide) {
  const auto draws = [](const std::string& target, const std::string& overload = "") {
    Node node;
    node.target = target;
    node.overload = overload;
    return draws_random_numbers(node);
  };
  EXPECT_TRUE(draws("aten::normal_"));
  EXPECT_TRUE(draws("aten::poisson"));
  EXPECT_TRUE(draws("aten::randint_like"));
  EXPECT_TRUE(draws("aten::rrelu"));
  EXPECT_FALSE(draws("aten::dropout"));
  EXPECT_FALSE(draws("aten::lstm", "input"));
  EXPECT_FALSE(draws("aten::relu"));
}

}  // namespace tandem::random_operators_test
