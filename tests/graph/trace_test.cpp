#include "tandem/graph/trace.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/module_state.h"
#include "tandem/graph/interpreter.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"
#include "tests/graph/residual_module.h"

namespace tandem::trace_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace nn = torch::nn;

template <typename Net>
TraceableFunction function_of(Net net) {
  return {
      [net](const at::Tensor& x) mutable { return net->forward(x); },
      named_tensors(net->named_parameters()), named_tensors(net->named_buffers()),
      [net](bool training) mutable { net->train(training); }};
}

Graph graph_of(const TraceableFunction& function, const std::vector<int64_t>& sample) {
  return trace(function, sample, at::kFloat);
}

std::string why_not(
    const TraceableFunction& function, const std::vector<int64_t>& sample = {4}) {
  const auto reason = error_of<NoGraph>([&] { return graph_of(function, sample); });
  EXPECT_EQ(reason.find('\n'), std::string::npos);
  return reason;
}

std::vector<std::string> targets_of(const Graph& graph) {
  std::vector<std::string> targets;
  for (const auto& node : graph.nodes) {
    targets.push_back(node.target);
  }
  return targets;
}

// Expects equal bits of outputs and gradients for this number of samples.
void expect_same_function(
    const TraceableFunction& function, const Graph& graph,
    const std::vector<int64_t>& input_shape, bool training) {
  const auto x = at::randn(input_shape);
  std::vector<at::Tensor> leaves;
  for (const auto& parameter : function.parameters) {
    leaves.push_back(parameter.tensor);
  }
  const auto gradients = [&](const at::Tensor& y) {
    return torch::autograd::grad(
        {y}, leaves, {at::ones_like(y)}, c10::nullopt, false, true);
  };
  function.set_training(training);
  Interpreter interpreter(graph, {});
  const auto expected = function.forward(x);
  const auto found = interpreter.run(x, in_mode(training));
  EXPECT_TRUE(found.equal(expected));
  const auto found_gradients = gradients(found);
  const auto expected_gradients = gradients(expected);
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(found_gradients[i].defined(), expected_gradients[i].defined());
    EXPECT_TRUE(
        !found_gradients[i].defined() ||
        found_gradients[i].equal(expected_gradients[i]));
  }
}

TEST(Trace, ResidualNetworkBecomesAGraphOfItsLayers) {
  const auto function = function_of(Residual());
  const auto graph = graph_of(function, {3, 8, 8});
  EXPECT_THAT(
      targets_of(graph),
      ElementsAre(
          "aten::conv2d", "aten::add_", "aten::batch_norm", "aten::relu",
          "aten::conv2d", "aten::add_", "aten::batch_norm", "aten::add", "aten::relu",
          "aten::adaptive_avg_pool2d", "aten::view", "aten::linear"));
  EXPECT_EQ(graph.nodes[1].module, "bn1");
  EXPECT_EQ(graph.nodes[11].module, "fc");
  EXPECT_EQ(graph.nodes[11].name, "linear_11");
  EXPECT_EQ(graph.nodes[11].number, 11);
  EXPECT_EQ(text_of(graph.value(graph.input).shape), "[N, 3, 8, 8]");
  EXPECT_EQ(text_of(graph.value(graph.output).shape), "[N, 10]");
  for (const bool training : {true, false}) {
    expect_same_function(function, graph, {7, 3, 8, 8}, training);
  }
}

TEST(Trace, ParametersAndBuffersAreTheTensorsOfTheModule) {
  Residual net;
  const auto graph = graph_of(function_of(net), {3, 8, 8});
  const auto parameters = parameters_of(graph);
  const auto expected = net->named_parameters().pairs();
  ASSERT_EQ(parameters.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(parameters[i].name, expected[i].first);
    EXPECT_TRUE(parameters[i].tensor.is_same(expected[i].second));
  }
  EXPECT_EQ(buffers_of(graph).size(), 6u);
  EXPECT_EQ(buffers_of(graph)[2].name, "bn1.num_batches_tracked");
}

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

TEST(Trace, LeavesTheModuleAndTheGeneratorAsTheyWere) {
  nn::Sequential net(
      nn::Linear(4, 3), nn::BatchNorm1d(3), nn::Dropout(0.5), nn::Linear(3, 2));
  net->forward(at::randn({5, 4}));
  std::vector<at::Tensor> before;
  for (const auto& buffer : net->named_buffers().values()) {
    before.push_back(buffer.clone());
  }
  const auto random = random_state();
  const auto graph = graph_of(function_of(net), {4});
  EXPECT_TRUE(random_state().equal(random));
  EXPECT_TRUE(net->is_training());
  const auto after = net->named_buffers().values();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(after[i].equal(before[i])) << i;
  }
  EXPECT_THAT(describe(graph), HasSubstr("aten::dropout"));
}

TEST(Trace, TrainingUpdatesTheBuffersAndEvaluationDoesNot) {
  nn::Sequential net(nn::Linear(4, 3), nn::BatchNorm1d(3));
  const auto graph = graph_of(function_of(net), {4});
  const auto count = net->named_buffers()["1.num_batches_tracked"];
  Interpreter interpreter(graph, {});
  interpreter.run(at::randn({5, 4}), in_mode(true));
  EXPECT_EQ(count.item<int64_t>(), 1);
  const auto mean = net->named_buffers()["1.running_mean"].clone();
  interpreter.run(at::randn({5, 4}), in_mode(false));
  EXPECT_EQ(count.item<int64_t>(), 1);
  EXPECT_TRUE(net->named_buffers()["1.running_mean"].equal(mean));
}

struct TransformerBlockImpl : nn::Module {
  TransformerBlockImpl() {
    embed = register_module("embed", nn::Linear(4, 8));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
    attention = register_module(
        "attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2)));
    mlp = register_module(
        "mlp", nn::Sequential(nn::Linear(8, 16), nn::GELU(), nn::Linear(16, 8)));
  }
  // Samples x 6 tokens x 4.
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = embed(tokens);
    const auto y = norm(x).transpose(0, 1);
    x = x + std::get<0>(attention(y, y, y)).transpose(0, 1);
    return (x + mlp->forward(norm(x))).mean(1);
  }
  nn::Linear embed{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::MultiheadAttention attention{nullptr};
  nn::Sequential mlp{nullptr};
};
TORCH_MODULE(TransformerBlock);

TEST(Trace, TransformerBlockHasSizesThatGrowWithTheBatch) {
  const auto function = function_of(TransformerBlock());
  const auto graph = graph_of(function, {6, 4});
  // Two heads for each sample.
  EXPECT_THAT(describe(graph), HasSubstr("[6, 2*N, 4]"));
  for (const bool training : {true, false}) {
    expect_same_function(function, graph, {7, 6, 4}, training);
    expect_same_function(function, graph, {1, 6, 4}, training);
  }
}

TEST(Trace, DropoutFollowsTheModeOfTheRun) {
  const auto graph =
      graph_of(function_of(nn::Sequential(nn::Linear(4, 3), nn::Dropout(0.5))), {4});
  Interpreter interpreter(graph, {});
  const auto x = at::randn({64, 4});
  const auto dropped = interpreter.run(x, in_mode(true)).eq(0).sum().item<int64_t>();
  EXPECT_GT(dropped, 50);
  EXPECT_LT(dropped, 142);
  EXPECT_EQ(interpreter.run(x, in_mode(false)).eq(0).sum().item<int64_t>(), 0);
}

// A function without mode: its parameter is a 4 x 4 matrix.
template <typename Forward>
TraceableFunction with_matrix(Forward forward) {
  const auto weight = at::randn({4, 4}).set_requires_grad(true);
  return {
      [=](const at::Tensor& x) { return forward(x, weight); },
      {{"weight", weight}},
      {},
      [](bool) {}};
}

TEST(Trace, SizeOfASampleIsAConstant) {
  const auto function = with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
    return x.view({x.size(0) * x.size(1), x.size(2)}).mm(weight) / x.size(2);
  });
  const auto graph = graph_of(function, {3, 4});
  EXPECT_THAT(
      describe(graph), AllOf(HasSubstr("[3*N, 4]"), HasSubstr("aten::div.Scalar")));
  expect_same_function(function, graph, {7, 3, 4}, true);
}

TEST(Trace, NumberOfSamplesIsASize) {
  const auto function = with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
    return x.mm(weight) / x.size(0) + torch::arange(x.size(0)).unsqueeze(1);
  });
  const auto graph = graph_of(function, {4});
  expect_same_function(function, graph, {7, 4}, true);
}

// A layer between two linear layers, so that it gets a gradient.
TraceableFunction around(const nn::AnyModule& layer, int64_t outputs) {
  struct NetImpl : nn::Module {
    NetImpl(nn::AnyModule layer, int64_t outputs) : middle(std::move(layer)) {
      first = register_module("first", nn::Linear(8, 8));
      register_module("middle", middle.ptr());
      last = register_module("last", nn::Linear(outputs, 2));
    }
    at::Tensor forward(const at::Tensor& x) {
      return last(middle.forward(first(x)).flatten(1));
    }
    nn::Linear first{nullptr};
    nn::AnyModule middle;
    nn::Linear last{nullptr};
  };
  return function_of(std::make_shared<NetImpl>(layer, outputs));
}

TEST(Trace, LayersOfLibTorchComputeTheSameBits) {
  // Samples x 4 channels x 8.
  const std::vector<std::pair<nn::AnyModule, int64_t>> layers = {
      {nn::AnyModule(nn::Conv1d(nn::Conv1dOptions(4, 6, 3).groups(2))), 36},
      {nn::AnyModule(nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 2, 3))), 20},
      {nn::AnyModule(nn::GroupNorm(nn::GroupNormOptions(2, 4))), 32},
      {nn::AnyModule(nn::ReLU(nn::ReLUOptions(true))), 32},
      {nn::AnyModule(nn::MaxPool1d(nn::MaxPool1dOptions(2))), 16},
      {nn::AnyModule(nn::Softmax(nn::SoftmaxOptions(1))), 32},
      {nn::AnyModule(nn::PReLU()), 32},
      {nn::AnyModule(nn::Unflatten(nn::UnflattenOptions(2, {2, 4}))), 32}};
  for (const auto& [layer, outputs] : layers) {
    const auto function = around(layer, outputs);
    const auto graph = graph_of(function, {4, 8});
    for (const bool training : {true, false}) {
      expect_same_function(function, graph, {7, 4, 8}, training);
    }
  }
}

TEST(Trace, RecurrentNetworkComputesTheSameBits) {
  struct NetImpl : nn::Module {
    NetImpl() {
      lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)));
      gru = register_module("gru", nn::GRU(nn::GRUOptions(4, 4).batch_first(true)));
    }
    at::Tensor forward(const at::Tensor& x) {
      const auto y = std::get<0>(lstm(x));
      return std::get<0>(gru(y)).select(1, -1);
    }
    nn::LSTM lstm{nullptr};
    nn::GRU gru{nullptr};
  };
  const auto function = function_of(std::make_shared<NetImpl>());
  const auto graph = graph_of(function, {5, 3});
  for (const bool training : {true, false}) {
    expect_same_function(function, graph, {7, 5, 3}, training);
  }
}

TEST(Trace, UnusedResultsAreNotInTheGraph) {
  const auto function = with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
    x.exp().sum();
    const auto halves = x.mm(weight).chunk(2, 1);
    return halves[1] * 3;
  });
  const auto graph = graph_of(function, {4});
  EXPECT_THAT(targets_of(graph), ElementsAre("aten::mm", "aten::chunk", "aten::mul"));
  EXPECT_EQ(graph.nodes[1].outputs[0], -1);
}

TEST(Trace, TiedWeightsAreOneValueWithTwoNames) {
  auto function = with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
    return x.mm(weight).relu().mm(weight.t());
  });
  function.parameters.push_back({"second", function.parameters[0].tensor});
  const auto graph = graph_of(function, {4});
  ASSERT_EQ(parameters_of(graph).size(), 2u);
  EXPECT_EQ(parameters_of(graph)[1].name, "second");
}

// --- functions without a graph

TEST(Trace, BranchOnTheNumberOfSamplesIsNoGraph) {
  const auto branch = [](int64_t limit) {
    return with_matrix([limit](const at::Tensor& x, const at::Tensor& weight) {
      const auto y = x.mm(weight);
      return x.size(0) > limit ? y.relu() : y.tanh();
    });
  };
  // Between the two traces.
  EXPECT_EQ(
      why_not(branch(2)),
      "batches of 2 and 3 samples call different operators: aten::tanh and aten::relu");
  // Between the traces and the comparison, and before the traces.
  EXPECT_THAT(why_not(branch(4)), HasSubstr("outputs differ from the function's"));
  EXPECT_THAT(why_not(branch(1)), HasSubstr("outputs differ from the function's"));
}

TEST(Trace, SizesThatAreNotLinearAreNoGraph) {
  EXPECT_THAT(
      why_not(with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
        return x.mm(weight) * (x.size(0) * x.size(0));
      })),
      HasSubstr("outputs differ from the function's"));
  EXPECT_EQ(
      why_not(with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
        return x.mm(weight) * (1.0 / static_cast<double>(x.size(0)));
      })),
      "the argument 'other' of aten::mul differs from call to call");
}

TEST(Trace, BranchOnAValueIsNoGraph) {
  EXPECT_THAT(
      why_not(with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
        const auto y = x.mm(weight);
        return y * y.max().item<double>();
      })),
      HasSubstr("aten::mul differs from call to call"));
}

TEST(Trace, GradientsThatTheTraceDoesNotRecordAreNoGraph) {
  EXPECT_THAT(
      why_not(with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
        at::Tensor first;
        {
          const at::NoGradGuard no_grad;
          first = x.mm(weight);
        }
        return first.mm(weight);
      })),
      HasSubstr("gradients differ"));
}

TEST(Trace, BatchNormCanBeFrozen) {
  nn::Sequential net(nn::Linear(4, 3), nn::BatchNorm1d(3));
  auto frozen = function_of(net);
  frozen.set_training = [net](bool) mutable { net->eval(); };
  EXPECT_EQ(why_not(frozen), "(no error)");
}

TEST(Trace, ModesThatTheModuleDoesNotFollowAreNoGraph) {
  auto training = function_of(nn::Sequential(nn::Linear(4, 3), nn::Dropout(0.5)));
  training.set_training = {};
  EXPECT_EQ(
      why_not(training),
      "the argument 'train' of aten::dropout does not follow the training mode");
}

TEST(Trace, OperatorsThatDependOnTheModeAreNoGraph) {
  const auto mode = std::make_shared<bool>(true);
  auto function = with_matrix([mode](const at::Tensor& x, const at::Tensor& weight) {
    return *mode ? x.mm(weight) : x.mm(weight).relu();
  });
  function.set_training = [mode](bool training) { *mode = training; };
  EXPECT_EQ(
      why_not(function),
      "training and evaluation call different operators: none and aten::relu");
}

TEST(Trace, AveragesOverAllBatchesAreNoGraph) {
  EXPECT_THAT(
      why_not(function_of(nn::Sequential(
          nn::Linear(4, 3),
          nn::BatchNorm1d(nn::BatchNorm1dOptions(3).momentum(c10::nullopt))))),
      HasSubstr("the argument 'momentum' of aten::batch_norm differs"));
}

TEST(Trace, ParametersReadThroughAnotherTensorAreNoGraph) {
  EXPECT_EQ(
      why_not(with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
        return x.mm(weight) + weight.data().sum();
      })),
      "'weight' is read through another tensor, for instance by data()");
}

TEST(Trace, RandomNumbersAreNoGraph) {
  EXPECT_THAT(
      why_not(with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
        return x.mm(weight) + at::randn_like(x);
      })),
      HasSubstr("aten::randn_like draws random numbers"));
}

TEST(Trace, ChangesOfOtherTensorsAreNoGraph) {
  const auto state = at::zeros({4});
  EXPECT_EQ(
      why_not(with_matrix([state](const at::Tensor& x, const at::Tensor& weight) {
        state.add_(1);
        return x.mm(weight) + state;
      })),
      "aten::add_ changes a tensor that is not a buffer in place");
  EXPECT_EQ(
      why_not(with_matrix([](at::Tensor x, const at::Tensor& weight) {
        return x.view({-1, 4}).mul_(2).mm(weight);
      })),
      "aten::mul_ changes the input in place");
}

TEST(Trace, ParametersWithoutANameAreNoGraph) {
  auto function = with_matrix(
      [](const at::Tensor& x, const at::Tensor& weight) { return x.mm(weight); });
  function.parameters.clear();
  EXPECT_THAT(
      why_not(function), HasSubstr("Cannot insert a Tensor that requires grad"));
}

TEST(Trace, ErrorsOfTheFunctionAreTheReason) {
  EXPECT_THAT(
      why_not(
          with_matrix([](const at::Tensor& x, const at::Tensor& weight) {
            return x.mm(weight);
          }),
          {5}),
      AllOf(
          HasSubstr("mat1 and mat2 shapes cannot be multiplied"),
          Not(HasSubstr("\n"))));
}

}  // namespace tandem::trace_test
