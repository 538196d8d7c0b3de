// Files of write_pt2() that tandem reads. tests/train/export_test.cpp reads them with
// PyTorch.

#include "tandem/graph/pt2_writer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tandem/base/error.h"
#include "tandem/formats/torch_zip.h"
#include "tandem/graph/interpreter.h"
#include "tandem/model/model.h"
#include "tests/core/expect.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"

namespace tandem::pt2_writer_test {

using testing::Contains;

Graph written_and_read(const Graph& graph) {
  const Scratch scratch;
  write_pt2(scratch / "net.pt2", graph);
  return read_pt2(scratch / "net.pt2");
}

void expect_equal(const Graph& found, const Graph& expected) {
  EXPECT_EQ(describe(found), describe(expected));
  expect_equal_tensors(parameters_of(found), parameters_of(expected));
  expect_equal_tensors(buffers_of(found), buffers_of(expected));
  ASSERT_EQ(found.nodes.size(), expected.nodes.size());
  for (size_t i = 0; i < found.nodes.size(); ++i) {
    EXPECT_EQ(found.nodes[i].source, expected.nodes[i].source);
  }
}

class Pt2Writer : public testing::TestWithParam<std::string> {};

TEST_P(Pt2Writer, WritesTheGraphAndItsTrainedWeights) {
  for (const auto& version : kTorchVersions) {
    SCOPED_TRACE(version);
    const Graph graph = read_fixture(GetParam() + "-" + version + ".pt2");
    for (const auto& [name, tensor] : parameters_of(graph)) {
      tensor.detach().add_(0.25);
    }
    expect_equal(written_and_read(graph), graph);
  }
}

std::vector<std::string> networks() {
  auto all = kNetworks;
  all.emplace_back("net");
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Pt2Writer, testing::ValuesIn(networks()),
    [](const auto& test) { return test.param; });

at::Tensor evaluated(const Graph& graph, const at::Tensor& input) {
  return Interpreter(graph, {}).run(input, in_mode(false));
}

TEST(Pt2WriterModels, EveryBuiltInModelHasEqualOutputs) {
  for (const auto& choice : choices<ModelKind>()) {
    if (!is_built_in(choice.value)) {
      continue;
    }
    SCOPED_TRACE(choice.name);
    ModelOptions options;
    const int64_t border = 2 * row_of(choice.value).pad;
    options.input[1] += border;
    options.input[2] += border;
    const auto model = make_model(choice.value, options);
    const Graph& graph = *model->graph();
    const Graph again = written_and_read(graph);
    expect_equal_tensors(parameters_of(again), parameters_of(graph));
    expect_equal_tensors(buffers_of(again), buffers_of(graph));
    expect_equal(written_and_read(again), again);
    const auto images =
        fixture_images({1, options.input[1], options.input[2]}, 0).to(at::kFloat);
    EXPECT_TRUE(evaluated(again, images).equal(evaluated(graph, images)));
    ASSERT_EQ(again.nodes.size(), graph.nodes.size());
    for (size_t i = 0; i < again.nodes.size(); ++i) {
      EXPECT_EQ(again.nodes[i].module, graph.nodes[i].module);
    }
  }
}

// --- arguments

Argument value(ValueId id) {
  return Argument::of_value(id);
}

// Expects that a graph from [N, 4, 6] to any shape is read as it was written.
void expect_same_outputs(const Graph& graph) {
  verify(graph);
  const Graph again = written_and_read(graph);
  expect_equal(written_and_read(again), again);
  for (const int64_t samples : {1, 5}) {
    const auto input = waves({samples, 4, 6});
    EXPECT_TRUE(evaluated(again, input).equal(evaluated(graph, input)));
  }
}

TEST(Pt2WriterArguments, SizesDependOnTheNumberOfSamples) {
  GraphBuilder builder({4, 6});
  const ValueId rows = builder.add(
      "aten::view", "",
      {value(0),
       Argument::of_list({Argument::of_size({0, 4}), Argument::of(int64_t{6})})},
      {{0, 4}, {6, 0}});
  const ValueId first = builder.add(
      "aten::slice", "Tensor",
      {value(rows), Argument::of(int64_t{0}), Argument::of(int64_t{0}),
       Argument::of(int64_t{1})},
      {{1, 0}, {6, 0}});
  const ValueId more = builder.add(
      "aten::cat", "", {Argument::of_list({value(rows), value(first)})},
      {{1, 4}, {6, 0}});
  const ValueId whole = builder.add(
      "aten::narrow", "",
      {value(more), Argument::of(int64_t{0}), Argument::of(int64_t{1}),
       Argument::of_size({0, 4})},
      {{0, 4}, {6, 0}});
  builder.add(
      "aten::view", "",
      {value(whole), Argument::of_list(
                         {Argument::of_size({0, 1}), Argument::of(int64_t{4}),
                          Argument::of_size({6, 0})})},
      batch_shape({4, 6}));
  expect_same_outputs(builder.graph());
}

TEST(Pt2WriterArguments, NumbersTypesAndTextsKeepTheirValues) {
  GraphBuilder builder({4, 6});
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueId mask = builder.add(
      "aten::gt", "Scalar", {value(0), Argument::of(0.999)}, batch_shape({4, 6}));
  builder.graph().values[static_cast<size_t>(mask)].dtype = at::kBool;
  ValueId last = builder.add(
      "aten::masked_fill", "Scalar", {value(0), value(mask), Argument::of(-infinity)},
      batch_shape({4, 6}));
  last = builder.add(
      "aten::softmax", "int",
      {value(last), Argument::of(int64_t{-1}),
       Argument::of(static_cast<int64_t>(at::kFloat))},
      batch_shape({4, 6}));
  builder.graph().values[static_cast<size_t>(last)].dtype = at::kFloat;
  last = builder.add(
      "aten::to", "dtype",
      {value(last), Argument::of(static_cast<int64_t>(at::kDouble)),
       Argument::of(false), Argument::of(true),
       Argument::of(static_cast<int64_t>(at::MemoryFormat::Contiguous))},
      batch_shape({4, 6}));
  last = builder.add(
      "aten::gelu", "", {value(last), Argument::of(std::string("tanh"))},
      batch_shape({4, 6}));
  builder.add(
      "aten::sum", "dim_IntList",
      {value(last), Argument::of(std::vector<int64_t>{1}), Argument::of(true)},
      batch_shape({1, 6}));
  expect_same_outputs(builder.graph());
}

TEST(Pt2WriterArguments, UnusedOutputsAndMissingTensorsOfAList) {
  GraphBuilder builder({4, 6});
  Graph& graph = builder.graph();
  const ValueId largest = builder.output("largest", batch_shape({4}));
  add_node(
      graph, "aten::max", "dim", {value(0), Argument::of(int64_t{2})}, {largest, -1});
  const ValueId half = builder.output("half", batch_shape({4, 3}));
  add_node(
      graph, "aten::chunk", "",
      {value(0), Argument::of(int64_t{2}), Argument::of(int64_t{2})}, {-1, half});
  Value order =
      value_of(ValueKind::constant, "order", at::arange(3, at::kLong).mul(-1).add(3));
  const ValueId rows = add_value(graph, std::move(order));
  const ValueId chosen = builder.add(
      "aten::index", "Tensor",
      {value(half), Argument::of_list({Argument(), value(rows)})}, batch_shape({3, 3}));
  const ValueId sum = builder.add(
      "aten::sum", "dim_IntList",
      {value(chosen), Argument::of(std::vector<int64_t>{1, 2})}, batch_shape({}));
  const ValueId column = builder.add(
      "aten::unsqueeze", "", {value(sum), Argument::of(int64_t{1})}, batch_shape({1}));
  builder.add("aten::add", "Tensor", {value(largest), value(column)}, batch_shape({4}));
  expect_same_outputs(graph);
}

// --- the file

TEST(Pt2WriterFile, HasTheLayoutOfNewVersionsWithStoredEntries) {
  const Scratch scratch;
  GraphBuilder builder({3});
  builder.linear(builder.input(), "fc", waves({2, 3}));
  write_pt2(scratch / "net.pt2", builder.graph());
  std::vector<std::string> names;
  const TorchZip zip({scratch / "net.pt2"}, "[test]", "");
  for (const auto& entry : zip.entries()) {
    names.push_back(entry.name);
  }
  for (const char* name :
       {"models/model.json", "data/weights/weight_0",
        "data/weights/model_weights_config.json",
        "data/constants/model_constants_config.json", "archive_format"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

TEST(Pt2WriterFile, AnArgumentWithoutCounterpartIsNamedAndNothingIsWritten) {
  const Scratch scratch;
  GraphBuilder builder({4, 6});
  builder.add(
      "aten::mul", "Scalar", {value(0), Argument::of(c10::complex<double>(0, 1))},
      batch_shape({4, 6}));
  builder.graph().nodes[0].source = "net.py:3: x * 1j";
  expect_error<ConfigError>(
      [&] { write_pt2(scratch / "net.pt2", builder.graph()); },
      {"net.py:3", "'other'", "ComplexDouble"});
  EXPECT_TRUE(list_directory(scratch.path()).empty());
}

TEST(Pt2WriterFile, AFolderThatDoesNotExistIsAnErrorWithThePath) {
  const Scratch scratch;
  GraphBuilder builder({3});
  builder.linear(builder.input(), "fc", waves({2, 3}));
  expect_error<DataError>(
      [&] { write_pt2(scratch / "no/net.pt2", builder.graph()); }, {"no/net.pt2"});
  EXPECT_TRUE(list_directory(scratch.path()).empty());
}

}  // namespace tandem::pt2_writer_test
