// ONNX files against ONNX Runtime, which `scripts/setup --torchrun` installs.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tandem/config/options/model_options.h"
#include "tandem/graph/interpreter.h"
#include "tandem/graph/onnx.h"
#include "tandem/model/graph_model.h"
#include "tandem/model/model.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"
#include "tests/parity/onnx_python.h"

namespace tandem::onnx_runtime_test {

constexpr int64_t kSamples = 1000;

void write_floats(const std::string& path, const at::Tensor& tensor) {
  const auto values = tensor.to(at::kFloat).contiguous();
  replace_file(
      path, std::string(static_cast<const char*>(values.data_ptr()), values.nbytes()));
}

// Networks, their inputs and their outputs in a directory, for onnx_check.py.
class OnnxRuntime : public testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_ONNX_RUNTIME();
  }

  void add(const std::string& name, Graph graph, int64_t samples = kSamples) {
    const at::NoGradGuard no_gradients;
    convert(graph, at::kFloat);
    const auto shape = sizes_at(graph.value(graph.input).shape, samples);
    const auto input =
        at::randn(shape, at::detail::createCPUGenerator(7), at::TensorOptions());
    write_floats(scratch_ / name + ".input", input);
    write_floats(
        scratch_ / name + ".output", Interpreter(graph, {}).run(input, in_mode(false)));
    replace_file(scratch_ / name + ".onnx", onnx_bytes(onnx_model(graph)));
  }

  void check() const {
    const auto result = checked(run_onnx_python(
        {source_dir() + "/tests/graph/onnx_check.py", scratch_.path()}));
    std::cout << result.output;
  }

  const Scratch scratch_;
};

TEST_F(OnnxRuntime, ComputesNetworksOfPyTorch) {
  auto names = kNetworks;
  names.emplace_back("net");
  for (const auto& name : names) {
    add(name, read_fixture(name + "-2.15.0.pt2"));
  }
  check();
}

TEST_F(OnnxRuntime, ComputesBuiltInModels) {
  for (const auto& choice : choices<ModelKind>()) {
    if (is_built_in(choice.value)) {
      ModelOptions options;
      options.seed = 3;
      add(choice.name, *make_model(choice.value, options)->graph());
    }
  }
  check();
}

// --- single operators

struct Call {
  std::string target;
  std::string overload;
  // Shape of a sample.
  std::vector<int64_t> sample;
  // Arguments after the input.
  std::vector<Argument> arguments;
};

Argument ints(std::vector<int64_t> values) {
  return Argument::of(c10::IValue(std::move(values)));
}
Argument number(double value) {
  return Argument::of(value);
}
Argument integer(int64_t value) {
  return Argument::of(value);
}
Argument flag(bool value) {
  return Argument::of(value);
}
// The input of the network, for operators that read it more than once.
const Argument kInput = Argument::of_value(0);
const Argument kNone = Argument::of(c10::IValue());
constexpr int64_t kLast = std::numeric_limits<int64_t>::max();

// Returns an argument of an operator, for a batch of `samples` samples.
c10::IValue value_of(const Graph& graph, const Argument& argument, int64_t samples) {
  if (argument.kind == Argument::Kind::value) {
    const Value& value = graph.value(argument.value);
    return value.tensor.defined() ? value.tensor
                                  : at::randn(sizes_at(value.shape, samples));
  }
  if (argument.kind != Argument::Kind::list) {
    return argument.constant;
  }
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> sizes;
  for (const auto& element : argument.list) {
    if (element.kind == Argument::Kind::value) {
      tensors.push_back(value_of(graph, element, samples).toTensor());
    } else {
      sizes.push_back(
          element.kind == Argument::Kind::size ? element.size.at(samples)
                                               : element.constant.toInt());
    }
  }
  return tensors.empty() ? c10::IValue(sizes) : c10::IValue(tensors);
}

// Sets the dtype and the shape of the output, found by running the graph's only node
// with two batch sizes.
void settle_output(Graph& graph) {
  const auto run = [&](int64_t samples) {
    const Node& node = graph.nodes[0];
    std::vector<c10::IValue> stack;
    for (const auto& argument : node.arguments) {
      stack.push_back(value_of(graph, argument, samples));
    }
    // LibTorch 1.13 lacks attention, whose output has the shape of the queries.
    const auto found = c10::Dispatcher::singleton().findSchema(
        {node.target.c_str(), node.overload.c_str()});
    if (found.has_value()) {
      found->callBoxed(&stack);
    }
    return stack[0].toTensor();
  };
  const auto two = run(2);
  const auto three = run(3);
  Value& output = graph.values[static_cast<size_t>(graph.output)];
  output.dtype = three.scalar_type();
  for (int64_t i = 0; i < two.dim(); ++i) {
    const int64_t step = three.size(i) - two.size(i);
    output.shape.push_back({two.size(i) - 2 * step, step});
  }
}

Graph graph_of(const Call& call) {
  GraphBuilder builder(call.sample);
  Graph& graph = builder.graph();
  graph.values[0].dtype = at::kFloat;
  std::vector<Argument> arguments = {Argument::of_value(graph.input)};
  for (const auto& argument : call.arguments) {
    if (argument.constant.isTensor()) {
      const auto tensor = argument.constant.toTensor();
      const std::string name = "p" + std::to_string(arguments.size());
      arguments.push_back(Argument::of_value(builder.state(
          name, tensor.is_floating_point() ? tensor.to(at::kFloat) : tensor)));
    } else {
      arguments.push_back(argument);
    }
  }
  // Operators on a list of tensors, such as cat.
  if (call.target == "aten::cat" || call.target == "aten::stack") {
    arguments[0] = Argument::of_list({arguments[0], arguments[0]});
  }
  if (call.target == "aten::einsum") {
    arguments = {call.arguments[0], Argument::of_list({arguments[0], arguments[0]})};
  }
  graph.output = add_value(graph, {ValueKind::output, "y", at::kFloat, {}});
  add_node(graph, call.target, call.overload, arguments, {graph.output});
  verify(graph);
  settle_output(graph);
  return graph;
}

Argument weights(const std::vector<int64_t>& shape) {
  return Argument::of(waves(shape));
}

std::vector<Call> more_calls() {
  const std::vector<int64_t> image = {4, 6, 9};
  const std::vector<double> twice = {2, 2};
  return {
      {"aten::instance_norm",
       "",
       image,
       {kNone, kNone, kNone, kNone, flag(true), number(0.1), number(1e-5),
        flag(false)}},
      {"aten::avg_pool2d", "", image, {ints({3}), ints({2}), ints({1}), flag(true)}},
      {"aten::avg_pool2d",
       "",
       image,
       {ints({3}), ints({2}), ints({1}), flag(true), flag(false)}},
      {"aten::avg_pool2d",
       "",
       image,
       {ints({3}), ints({2}), ints({1}), flag(false), flag(true), integer(5)}},
      {"aten::adaptive_avg_pool2d", "", image, {ints({4, 5})}},
      {"aten::im2col",
       "",
       image,
       {ints({2, 3}), ints({2, 1}), ints({1, 0}), ints({1, 2})}},
      {"aten::col2im",
       "",
       {8, 8},
       {ints({4, 5}), ints({2, 2}), ints({1, 1}), ints({0, 0}), ints({2, 1})}},
      {"aten::upsample_nearest2d",
       "vec",
       image,
       {kNone, Argument::of(std::vector<double>{1.5, 2})}},
      {"aten::upsample_bilinear2d",
       "vec",
       image,
       {kNone, flag(false), Argument::of(twice)}},
      {"aten::upsample_bilinear2d",
       "vec",
       image,
       {kNone, flag(true), Argument::of(twice)}},
      {"aten::upsample_bilinear2d", "vec", image, {ints({5, 7}), flag(false), kNone}},
      {"aten::upsample_bicubic2d", "vec", image, {ints({5, 17}), flag(false), kNone}},
      {"aten::upsample_linear1d", "vec", {4, 9}, {ints({5}), flag(false), kNone}},
      {"aten::pixel_shuffle", "", {4, 6, 9}, {integer(2)}},
      {"aten::pixel_unshuffle", "", {4, 6, 8}, {integer(2)}},
      {"aten::channel_shuffle", "", image, {integer(2)}},
      {"aten::einsum", "", {5}, {Argument::of("bi,bj->bij")}},
      {"aten::clamp_min", "", {5}, {number(0.2)}},
      {"aten::clamp", "Tensor", {5}, {weights({5}), kNone}},
      {"aten::threshold", "", {5}, {number(0.1), number(3)}},
      {"aten::div",
       "Tensor_mode",
       {5},
       {Argument::of(waves({5}).sub(2)), Argument::of("floor")}},
      {"aten::div", "Scalar_mode", {5}, {number(0.3), Argument::of("trunc")}},
      {"aten::remainder", "Scalar", {5}, {number(-0.4)}},
      {"aten::fmod", "Scalar", {5}, {number(0.4)}},
      {"aten::lerp", "Scalar", {5}, {weights({5}), number(0.3)}},
      {"aten::masked_fill", "Scalar", {5}, {Argument::of(waves({5}).lt(0)), number(2)}},
      {"aten::softplus", "", {5}, {number(2), number(1)}},
      {"aten::amax", "", image, {ints({1, -1}), flag(true)}},
      {"aten::amin", "", image, {ints({2})}},
      {"aten::prod", "dim_int", {5}, {integer(1)}},
      {"aten::std", "correction", image, {ints({1, 2}), integer(0), flag(true)}},
      {"aten::var", "dim", image, {ints({-1})}},
      {"aten::logsumexp", "", image, {ints({1})}},
      {"aten::linalg_vector_norm", "", image, {number(2), ints({1}), flag(true)}},
      {"aten::linalg_vector_norm", "", image, {number(3), ints({1, 2})}},
      {"aten::norm", "ScalarOpt_dim", image, {number(1), ints({-1})}},
      {"aten::cumsum", "", image, {integer(-2)}},
      {"aten::argmax", "", image, {integer(2)}},
      {"aten::argmin", "", image, {integer(1), flag(true)}},
      {"aten::index_select",
       "",
       image,
       {integer(1), Argument::of(at::tensor({3, 0}, at::kLong))}},
      {"aten::flip", "", image, {ints({1, -1})}},
      {"aten::roll", "", image, {ints({2, -1}), ints({1, 3})}},
      {"aten::repeat", "", {5}, {ints({1, 3})}},
      {"aten::repeat_interleave", "self_int", image, {integer(2), integer(1)}},
      {"aten::tril", "", {4, 4}, {integer(-1)}},
      {"aten::triu", "", {4, 4}, {integer(1)}},
      {"aten::unfold", "", {9}, {integer(1), integer(4), integer(2)}},
      {"aten::movedim", "int", image, {integer(1), integer(3)}},
      {"aten::pad", "", image, {ints({1, 2, 0, 3}), Argument::of("circular")}},
      {"aten::pad", "", image, {ints({1, 2, 0, 3}), Argument::of("reflect")}},
      {"aten::gelu", "", {5}, {Argument::of("none")}},
      {"aten::zeros_like", "", {5}, {}},
  };
}

std::vector<Call> calls() {
  const std::vector<int64_t> image = {4, 6, 9};
  std::vector<Call> all = {
      {"aten::conv1d",
       "",
       {4, 9},
       {weights({6, 2, 3}), kNone, ints({2}), ints({1}), ints({1}), integer(2)}},
      {"aten::conv2d",
       "",
       image,
       {weights({6, 4, 3, 2}), weights({6}), ints({1, 2}), ints({1}), ints({2, 1})}},
      {"aten::conv2d",
       "padding",
       image,
       {weights({6, 4, 4, 3}), weights({6}), ints({1}), Argument::of("same")}},
      {"aten::conv_transpose2d",
       "input",
       image,
       {weights({4, 3, 3, 2}), weights({6}), ints({2, 3}), ints({1, 0}), ints({1, 2}),
        integer(2), ints({1, 2})}},
      {"aten::linear", "", {3, 5}, {weights({2, 5}), weights({2})}},
      {"aten::linear", "", {5}, {weights({2, 5})}},
      {"aten::matmul", "", {3, 5}, {weights({5, 2})}},
      {"aten::batch_norm",
       "",
       image,
       {kNone, kNone, weights({4}), Argument::of(waves({4}).abs().add(1)), flag(true),
        number(0.1), number(1e-3), flag(false)}},
      {"aten::layer_norm", "", image, {ints({6, 9}), kNone, kNone, number(1e-4)}},
      {"aten::layer_norm", "", image, {ints({9}), weights({9}), weights({9})}},
      {"aten::group_norm", "", image, {integer(2), weights({4}), weights({4})}},
      {"aten::group_norm", "", {8}, {integer(2)}},
      {"aten::max_pool1d", "", {4, 9}, {ints({3})}},
      {"aten::max_pool2d",
       "",
       image,
       {ints({3, 2}), ints({2}), ints({1}), ints({1}), flag(true)}},
      {"aten::max_pool2d", "", image, {ints({2}), ints({1}), ints({0}), ints({2, 3})}},
      {"aten::avg_pool2d", "", image, {ints({3}), ints({2}), ints({1})}},
      {"aten::avg_pool2d",
       "",
       image,
       {ints({3}), ints({2}), ints({1}), flag(false), flag(false)}},
      {"aten::adaptive_avg_pool2d", "", image, {ints({2, 3})}},
      {"aten::adaptive_avg_pool1d", "", {4, 9}, {ints({1})}},
      {"aten::scaled_dot_product_attention",
       "",
       {2, 5, 4},
       {kInput, kInput, kNone, number(0.5), flag(true)}},
      {"aten::scaled_dot_product_attention",
       "",
       {2, 5, 4},
       {kInput, kInput, weights({5, 5})}},
      {"aten::scaled_dot_product_attention",
       "",
       {2, 5, 4},
       {kInput, kInput, Argument::of(waves({5, 5}).lt(0.5))}},
      {"aten::relu6", "", {5}, {}},
      {"aten::leaky_relu", "", {5}, {number(0.2)}},
      {"aten::prelu", "", image, {weights({4})}},
      {"aten::prelu", "", image, {weights({1})}},
      {"aten::elu", "", {5}, {number(0.7)}},
      {"aten::celu", "", {5}, {number(0.7)}},
      {"aten::selu", "", {5}, {}},
      {"aten::gelu", "", {5}, {}},
      {"aten::gelu", "", {5}, {Argument::of("tanh")}},
      {"aten::mish", "", {5}, {}},
      {"aten::softplus", "", {5}, {}},
      {"aten::log_sigmoid", "", {5}, {}},
      {"aten::hardsigmoid", "", {5}, {}},
      {"aten::clamp", "", {5}, {kNone, number(0.3)}},
      {"aten::clamp", "", {5}, {number(-0.3)}},
      {"aten::softmax", "int", image, {integer(-2)}},
      {"aten::log_softmax", "int", image, {integer(1)}},
      {"aten::add", "Tensor", image, {weights({4, 1, 9}), number(0.5)}},
      {"aten::add", "Scalar", {5}, {integer(3), integer(2)}},
      {"aten::sub", "Tensor", image, {weights({9}), integer(2)}},
      {"aten::rsub", "Scalar", {5}, {number(1), number(0.5)}},
      {"aten::div", "Tensor", {5}, {Argument::of(waves({5}).add(2))}},
      {"aten::div", "Scalar", {5}, {integer(3)}},
      {"aten::pow", "Tensor_Scalar", {5}, {integer(2)}},
      {"aten::maximum", "", {5}, {weights({5})}},
      {"aten::minimum", "", {5}, {weights({5})}},
      {"aten::square", "", {5}, {}},
      {"aten::mean", "dim", image, {ints({-1, 2}), flag(true)}},
      {"aten::sum", "dim_IntList", image, {ints({1, 3})}},
      {"aten::flatten", "using_ints", image, {integer(1), integer(2)}},
      {"aten::view",
       "",
       {4, 6},
       {Argument::of_list({Argument::of_size({0, 2}), integer(2), integer(6)})}},
      {"aten::squeeze", "dim", {1, 5}, {integer(1)}},
      {"aten::unsqueeze", "", {5}, {integer(-1)}},
      {"aten::permute", "", image, {ints({0, 3, 1, -2})}},
      {"aten::expand",
       "",
       {1, 5},
       {Argument::of_list({Argument::of_size({0, 1}), integer(3), integer(-1)})}},
      {"aten::cat", "", {4, 6}, {integer(-1)}},
      {"aten::stack", "", {4, 6}, {integer(-1)}},
      {"aten::select", "int", image, {integer(-1), integer(-2)}},
      {"aten::slice",
       "Tensor",
       image,
       {integer(3), integer(-7), integer(kLast), integer(2)}},
      {"aten::narrow", "", image, {integer(1), integer(-3), integer(2)}},
      {"aten::pad",
       "",
       image,
       {ints({1, 2, 0, 3}), Argument::of("constant"), number(0.5)}},
      {"aten::pad", "", image, {ints({1, 2, 0, 3}), Argument::of("replicate")}},
      {"aten::constant_pad_nd", "", image, {ints({2, -1}), number(0.5)}},
  };
  for (auto& call : more_calls()) {
    all.push_back(std::move(call));
  }
  for (const char* name :
       {"floor", "ceil", "round", "trunc", "frac", "sign", "sinh", "cosh", "tan",
        "asinh", "atan", "exp2", "expm1", "hardshrink", "softshrink", "logsigmoid",
        "argsort", "glu"}) {
    const std::string target = name == std::string("logsigmoid") ? "log_sigmoid" : name;
    all.push_back({"aten::" + target, "", {6}, {}});
  }
  for (const char* name :
       {"relu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish", "neg", "abs", "exp",
        "sin", "cos", "erf", "contiguous", "clone", "detach"}) {
    all.push_back({std::string("aten::") + name, "", {5}, {}});
  }
  return all;
}

TEST_F(OnnxRuntime, ComputesEachOperator) {
  int index = 0;
  for (const auto& call : calls()) {
    SCOPED_TRACE(call.target);
    const std::string name = call.target.substr(6);
    add(std::to_string(100 + index++) + "-" + name, graph_of(call), 3);
  }
  check();
}

// Returns the difference of the third part of the input and the first part.
Graph difference_of_parts(
    const std::string& target, const std::string& overload, const Argument& parts,
    const std::vector<int64_t>& shape) {
  GraphBuilder builder({4, 6});
  const std::vector<ValueId> outputs = {
      builder.output("p0", batch_shape(shape)), -1,
      builder.output("p2", batch_shape(shape))};
  std::vector<Argument> arguments = {Argument::of_value(builder.input()), parts};
  if (target != "aten::unbind") {
    arguments.push_back(integer(-1));
  }
  add_node(builder.graph(), target, overload, arguments, outputs);
  builder.call(
      "aten::sub", "Tensor",
      {Argument::of_value(outputs[2]), Argument::of_value(outputs[0])}, shape);
  verify(builder.graph());
  return builder.graph();
}

TEST_F(OnnxRuntime, ComputesParts) {
  add("chunk", difference_of_parts("aten::chunk", "", integer(3), {4, 2}), 3);
  add("split", difference_of_parts("aten::split", "Tensor", integer(2), {4, 2}), 3);
  add("split_with_sizes",
      difference_of_parts("aten::split_with_sizes", "", ints({1, 4, 1}), {4, 1}), 3);
  add("unbind", difference_of_parts("aten::unbind", "int", integer(1), {6}), 3);
  check();
}

// Multiplies by 2 * N + 1, and divides by it.
TEST_F(OnnxRuntime, ComputesNumbersOfSamples) {
  GraphBuilder builder({5});
  const Argument number = Argument::of_size({1, 2});
  auto x = builder.input();
  for (const char* target : {"aten::mul", "aten::div"}) {
    x = builder.call(target, "Scalar", {Argument::of_value(x), number}, {5});
  }
  verify(builder.graph());
  add("numbers", builder.graph(), 3);
  check();
}

// Adds a recurrent layer of two layers and both directions, whose input is [N, 4, 6],
// and returns its first or last output.
Graph recurrent(const std::string& kind, bool has_biases, size_t output) {
  const int64_t gates = kind == "lstm" ? 4 : kind == "gru" ? 3 : 1;
  GraphBuilder builder({4, 6});
  std::vector<Argument> weights;
  for (int i = 0; i < 4; ++i) {
    const int64_t width = i < 2 ? 6 : 10;
    for (const auto& shape : std::vector<std::vector<int64_t>>{
             {gates * 5, width}, {gates * 5, 5}, {gates * 5}, {gates * 5}}) {
      if (shape.size() == 2 || has_biases) {
        weights.push_back(Argument::of_value(builder.state(
            "w" + std::to_string(weights.size()), waves(shape).mul(0.3))));
      }
    }
  }
  const std::vector<Size> state = {{4, 0}, {0, 1}, {5, 0}};
  const auto zero = builder.add(
      "aten::ones", "",
      {Argument::of_list({integer(4), Argument::of_size({0, 1}), integer(5)})}, state);
  const Argument zeros = Argument::of_value(zero);
  builder.graph().values[static_cast<size_t>(zero)].dtype = at::kFloat;
  std::vector<ValueId> outputs = {builder.output("y", batch_shape({4, 10}))};
  for (size_t i = 0; i < (kind == "lstm" ? 2u : 1u); ++i) {
    outputs.push_back(builder.output("state" + std::to_string(i), state));
  }
  add_node(
      builder.graph(), "aten::" + kind, "input",
      {Argument::of_value(builder.input()),
       kind == "lstm" ? Argument::of_list({zeros, zeros}) : zeros,
       Argument::of_list(weights), flag(has_biases), integer(2), number(0), flag(true),
       flag(true), flag(true)},
      outputs);
  if (output == 0) {
    builder.graph().output = outputs[0];
  } else {
    builder.call(
        "aten::transpose", "int",
        {Argument::of_value(outputs[output]), integer(0), integer(1)}, {4, 5});
  }
  verify(builder.graph());
  return builder.graph();
}

TEST_F(OnnxRuntime, ComputesRecurrentLayers) {
  for (const std::string kind : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    add(kind, recurrent(kind, true, 0), 3);
    add(kind + "-state", recurrent(kind, true, kind == "lstm" ? 2 : 1), 3);
    add(kind + "-without-bias", recurrent(kind, false, 0), 3);
  }
  check();
}

// Returns an operator's output number `index`, converted to float.
Graph output_of(
    const std::string& target, const std::string& overload,
    std::vector<Argument> arguments, size_t index, int64_t size) {
  GraphBuilder builder({6});
  const std::vector<ValueId> outputs = {
      builder.output("values", batch_shape({size})),
      builder.output("indices", batch_shape({size}))};
  builder.graph().values[static_cast<size_t>(outputs[1])].dtype = at::kLong;
  arguments.insert(arguments.begin(), Argument::of_value(builder.input()));
  add_node(builder.graph(), target, overload, std::move(arguments), outputs);
  builder.call(
      "aten::to", "dtype",
      {Argument::of_value(outputs[index]), integer(static_cast<int64_t>(at::kDouble))},
      {size});
  verify(builder.graph());
  return builder.graph();
}

TEST_F(OnnxRuntime, ComputesValuesAndIndices) {
  for (const size_t i : {0, 1}) {
    const auto name = [&](const char* of) { return of + std::to_string(i); };
    add(name("topk"), output_of("aten::topk", "", {integer(3), integer(1)}, i, 3), 3);
    add(name("sort"), output_of("aten::sort", "", {integer(1), flag(true)}, i, 6), 3);
    add(name("max"), output_of("aten::max", "dim", {integer(1), flag(true)}, i, 1), 3);
    add(name("min"), output_of("aten::min", "dim", {integer(-1), flag(true)}, i, 1), 3);
  }
  check();
}

// Selects the input or its negative product, by comparisons and logic.
TEST_F(OnnxRuntime, ComputesConditions) {
  GraphBuilder builder({5});
  const auto boolean = [&](const char* target, const char* overload,
                           std::vector<Argument> arguments) {
    const auto id = builder.call(target, overload, std::move(arguments), {5});
    builder.graph().values[static_cast<size_t>(id)].dtype = at::kBool;
    return Argument::of_value(id);
  };
  const auto x = Argument::of_value(builder.input());
  const auto above = boolean("aten::gt", "Scalar", {x, number(0.3)});
  const auto below = boolean("aten::le", "Scalar", {x, number(-0.5)});
  const auto other = boolean("aten::ne", "Tensor", {above, below});
  const auto both = boolean("aten::logical_and", "", {other, above});
  const auto chosen = boolean("aten::logical_or", "", {both, below});
  const auto scaled = builder.call("aten::mul", "Scalar", {x, number(-0.1)}, {5});
  builder.call("aten::where", "self", {chosen, x, Argument::of_value(scaled)}, {5});
  verify(builder.graph());
  add("conditions", builder.graph());
  check();
}

// Embeds the absolute values of the input, as integers up to 3.
TEST_F(OnnxRuntime, ComputesEmbeddings) {
  GraphBuilder builder({4});
  auto x = builder.input();
  x = builder.call("aten::abs", "", {Argument::of_value(x)}, {4});
  x = builder.call("aten::clamp", "", {Argument::of_value(x), kNone, integer(3)}, {4});
  x = builder.call(
      "aten::to", "dtype",
      {Argument::of_value(x), integer(static_cast<int64_t>(at::kLong))}, {4});
  builder.graph().values[static_cast<size_t>(x)].dtype = at::kLong;
  const auto weight = builder.state("table", waves({4, 5}));
  builder.call(
      "aten::embedding", "", {Argument::of_value(weight), Argument::of_value(x)},
      {4, 5});
  verify(builder.graph());
  add("embedding", builder.graph());
  check();
}

}  // namespace tandem::onnx_runtime_test
