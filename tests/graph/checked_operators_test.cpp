// Networks of files that would access memory outside of their tensors.

#include "tandem/graph/checked_operators.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include <limits>

#include "tandem/base/error.h"
#include "tandem/graph/interpreter.h"
#include "tandem/graph/pt2_writer.h"
#include "tests/core/expect.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"

namespace tandem::checked_operators_test {

using testing::HasSubstr;

// Returns a call whose arguments are those of `first`, then the defaults of the schema,
// and values for the others.
Node call_of(
    const std::string& target, const std::string& overload,
    const std::vector<Argument>& first) {
  Node node;
  node.name = "n";
  node.target = target;
  node.overload = overload;
  node.outputs = {1};
  for (const auto& wanted : schema_of(node).arguments()) {
    const size_t i = node.arguments.size();
    node.arguments.push_back(
        i < first.size()         ? first[i]
        : wanted.default_value() ? Argument::of(*wanted.default_value())
                                 : Argument::of_value(0));
  }
  return node;
}

std::string problem_of(
    const std::string& target, const std::string& overload = "",
    const std::vector<Argument>& first = {}) {
  const Node node = call_of(target, overload, first);
  return find_unsafe(node, schema_of(node)).value_or("");
}

TEST(CheckedOperators, RefuseKernelsThatTrustIndicesOrStrides) {
  for (const std::string target :
       {"max_pool2d_with_indices_backward", "_embedding_bag_dense_backward",
        "_pack_padded_sequence", "_index_put_impl_", "resize_", "empty_strided",
        "_sparse_coo_tensor_unsafe", "ormqr", "lu_unpack", "col_indices", "t_",
        "swapaxes_", "embedding_dense_backward", "_reshape_alias", "mkldnn_convolution",
        "_thnn_fused_lstm_cell", "segment_reduce", "from_file"}) {
    EXPECT_THAT(problem_of("aten::" + target), HasSubstr("LibTorch does not check"))
        << target;
  }
  EXPECT_NE(problem_of("aten::add", "out"), "");
  EXPECT_NE(problem_of("aten::lstm", "data"), "");
  EXPECT_NE(problem_of("aten::searchsorted", "Tensor"), "");
  EXPECT_NE(problem_of("aten::ctc_loss", "IntList"), "");
  EXPECT_EQ(problem_of("aten::div", "out"), "");
  for (const char* target : {"aten::relu_", "aten::linear", "aten::max_unpool2d"}) {
    EXPECT_EQ(problem_of(target), "") << target;
  }
}

TEST(CheckedOperators, RefuseNumbersThatKernelsDoNotCheck) {
  const auto x = Argument::of_value(0);
  const auto none = Argument();
  const auto list = [](std::vector<int64_t> numbers) {
    return Argument::of(std::move(numbers));
  };
  const auto groups = [&](int64_t count) {
    return problem_of(
        "aten::conv2d", "",
        {x, x, none, list({1, 1}), list({0, 0}), list({1, 1}), Argument::of(count)});
  };
  EXPECT_EQ(groups(2), "");
  EXPECT_THAT(groups(int64_t{1} << 34), HasSubstr("the argument 'groups'"));
  EXPECT_EQ(problem_of("aten::reflection_pad2d", "", {x, list({1, 1, 1, 1})}), "");
  EXPECT_NE(problem_of("aten::reflection_pad2d", "", {x, list({})}), "");
  EXPECT_NE(problem_of("aten::max_unpool2d", "", {x, x, list({4})}), "");
  EXPECT_EQ(problem_of("aten::max_pool2d", "", {x, list({2, 2}), list({})}), "");
  const auto dtype = [&](int64_t number) {
    return problem_of("aten::ones_like", "", {x, Argument::of(number)});
  };
  EXPECT_EQ(dtype(static_cast<int64_t>(at::kFloat)), "");
  EXPECT_NE(dtype(static_cast<int64_t>(at::kQInt8)), "");
  EXPECT_NE(dtype(1000), "");
}

// Runs one call whose tensors are constants.
std::string error_of_call(
    const std::string& target, const std::vector<at::Tensor>& tensors,
    const std::vector<Argument>& more = {}, const std::string& overload = "") {
  GraphBuilder builder({3});
  std::vector<Argument> arguments;
  for (const auto& tensor : tensors) {
    const auto name = "t" + std::to_string(arguments.size());
    arguments.push_back(
        Argument::of_value(builder.state(name, tensor, ValueKind::constant)));
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  builder.add(target, overload, call_of(target, overload, arguments).arguments, {});
  const auto& graph = builder.graph();
  return error_of<Error>([&] {
    Interpreter(graph, {}).run(waves({2, 3}), in_mode(false));
  });
}

TEST(CheckedOperators, ValuesAreCheckedBeforeTheKernelRuns) {
  const auto image = at::full({1, 2, 6, 6}, 1.0f);
  const auto list = [](int64_t number) {
    return Argument::of(std::vector<int64_t>(2, number));
  };
  EXPECT_THAT(
      error_of_call(
          "aten::fractional_max_pool2d", {image},
          {list(2), list(3), Argument::of_value(0)}),
      HasSubstr("random_samples have the shape [2, 3]"));
  EXPECT_THAT(
      error_of_call(
          "aten::grid_sampler", {image, at::full({1, 3, 3, 2}, NAN, at::kFloat)},
          {Argument::of(0), Argument::of(0), Argument::of(false)}),
      HasSubstr("the grid has a number that is not finite"));
  EXPECT_THAT(
      error_of_call(
          "aten::upsample_bilinear2d", {image},
          {list(9), Argument::of(false), Argument::of(1e-9), Argument::of(1e-9)}),
      HasSubstr("a scale differs from the sizes"));
  const auto smallest = at::full({3}, std::numeric_limits<int64_t>::min(), at::kLong);
  EXPECT_THAT(
      error_of_call("aten::floor_divide", {smallest, at::full({3}, -1, at::kLong)}),
      HasSubstr("the smallest integer is divided by -1"));
  EXPECT_THAT(
      error_of_call("aten::channel_shuffle", {image}, {Argument::of(0)}),
      HasSubstr("groups is 0"));
  const auto count = at::full({}, int64_t{1} << 34, at::kLong);
  EXPECT_THAT(
      error_of_call(
          "aten::tensor_split", {image, count}, {}, "tensor_indices_or_sections"),
      HasSubstr("the number of parts is 17179869184"));
}

TEST(CheckedOperators, RecurrentLayersNeedAllTheirWeights) {
  const auto x = at::full({2, 3, 4}, 0.5f);
  GraphBuilder builder({3, 4});
  const auto value = [&](const std::string& name, const at::Tensor& tensor) {
    return Argument::of_value(builder.state(name, tensor, ValueKind::constant));
  };
  builder.add(
      "aten::gru", "input",
      {value("x", x), value("h", at::full({1, 3, 5}, 0.5f)),
       Argument::of_list({value("w", at::full({15, 4}, 0.5f))}), Argument::of(true),
       Argument::of(1), Argument::of(0.0), Argument::of(false), Argument::of(false),
       Argument::of(false)},
      {});
  EXPECT_THAT(
      error_of<Error>([&] {
        Interpreter(builder.graph(), {}).run(waves({2, 3, 4}), in_mode(false));
      }),
      HasSubstr("there are 1 weights, expected 4"));
}

// The attack: 2^34 as an index of a backward.
TEST(CheckedOperators, ReadPt2RefusesThem) {
  const Scratch scratch;
  GraphBuilder builder({1, 4, 4});
  const auto x = Argument::of_value(builder.input());
  const auto index = builder.state(
      "idx", at::full({1, 1, 2, 2}, int64_t{1} << 34, at::kLong), ValueKind::buffer);
  const auto pair = [](int64_t number) {
    return Argument::of(std::vector<int64_t>{number, number});
  };
  builder.call(
      "aten::max_pool2d_with_indices_backward", "",
      {x, x, pair(2), pair(2), pair(0), pair(1), Argument::of(false),
       Argument::of_value(index)},
      {1, 4, 4});
  write_pt2(scratch / "net.pt2", builder.graph());
  expect_error<ConfigError>(
      [&] { (void)read_pt2(scratch / "net.pt2"); },
      {"net.pt2", "calls aten::max_pool2d_with_indices_backward",
       "whose arguments LibTorch does not check"});
}

}  // namespace tandem::checked_operators_test
