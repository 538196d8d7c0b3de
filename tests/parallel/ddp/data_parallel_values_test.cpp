// Division of inputs among replicas, and gathering of their outputs.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Optional.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/parallel/ddp/data_parallel_module.h"
#include "tests/core/expect.h"
#include "tests/parallel/ddp/does.h"
#include "tests/parity/numbers.h"

namespace tandem::data_parallel_values_test {

using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor rows_of(const at::Tensor& x) {
  return at::full({1}, x.size(0), at::kLong);
}

Numbers chunk_sizes(int64_t rows, int64_t replicas) {
  auto model = rows_model([](Rows&, auto x) { return rows_of(x); }, replicas);
  return flat(model->forward(at::ones({rows, 3}, at::kDouble)));
}

TEST(DataParallelValues, DividesABatchLikeTorchChunk) {
  EXPECT_THAT(chunk_sizes(7, 3), ElementsAre(3, 3, 1));
  EXPECT_THAT(chunk_sizes(64, 3), ElementsAre(22, 22, 20));
  EXPECT_THAT(chunk_sizes(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(chunk_sizes(4, 3), ElementsAre(2, 2));
  EXPECT_THAT(chunk_sizes(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(chunk_sizes(1, 4), ElementsAre(1));
  EXPECT_THAT(chunk_sizes(0, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(chunk_sizes(7, 1), ElementsAre(7));
}

TEST(DataParallelValues, EmptyBatchHasEmptyOutputAndZeroGradients) {
  torch::nn::Linear net(3, 2);
  DataParallel<torch::nn::Linear> model(net, 3);
  const auto y = model->forward(at::ones({0, 3}));
  EXPECT_THAT(y.sizes().vec(), ElementsAre(0, 2));
  y.sum().backward();
  EXPECT_TRUE(net->weight.grad().eq(0).all().item<bool>());
}

TEST(DataParallelValues, DividesTensorsInContainersAndCopiesOtherValues) {
  using Optional = std::optional<at::Tensor>;
  using Torchs = c10::optional<at::Tensor>;
  using Pair = std::pair<std::vector<at::Tensor>, std::tuple<at::Tensor, double>>;
  using Map = std::map<std::string, at::Tensor>;
  auto model = replicas_that<
      at::Tensor, at::Tensor, Pair, Optional, Torchs, Optional, Map, int, bool>(
      [](auto&, at::Tensor x, Pair pair, Optional given, Torchs theirs, Optional none,
         Map map, int number, bool flag) {
        const auto& [tensor, factor] = pair.second;
        EXPECT_FALSE(none.has_value());
        EXPECT_TRUE(flag);
        EXPECT_EQ(given->size(0), x.size(0));
        return x + pair.first[1] * 10 + tensor * factor + *given + *theirs +
               map.at("mask") * map.at("scale") + number;
      });
  const auto x = numbers(1, {7, 2});
  const Pair pair = {{x, x + 1}, {x + 2, 0.5}};
  const Map map = {{"mask", x + 6}, {"scale", x + 7}};
  const auto y =
      model->forward(x, pair, Optional(x + 3), Torchs(x + 4), Optional(), map, 5, true);
  const auto expected =
      x + (x + 1) * 10 + (x + 2) * 0.5 + (x + 3) + (x + 4) + (x + 6) * (x + 7) + 5;
  EXPECT_TRUE(y.equal(expected));
}

TEST(DataParallelValues, PassesUndefinedTensorsUnchanged) {
  auto model = replicas_that<at::Tensor, at::Tensor, at::Tensor>(
      [](auto&, at::Tensor x, at::Tensor mask) {
        return mask.defined() ? x * mask : x;
      });
  const auto x = numbers(1, {4, 2});
  EXPECT_TRUE(model->forward(x, at::Tensor()).equal(x));
}

TEST(DataParallelValues, WithoutTensorsAllReplicasComputeTheSame) {
  auto model = replicas_that<at::Tensor, int>(
      [](auto&, int number) { return at::full({1}, number, at::kDouble); });
  EXPECT_THAT(flat(model->forward(4)), ElementsAre(4, 4, 4));
}

TEST(DataParallelValues, GathersMaps) {
  using Map = std::map<std::string, std::vector<at::Tensor>>;
  auto model = replicas_that<Map, at::Tensor>([](auto&, at::Tensor x) {
    return Map{{"logits", {x * 2}}, {"hidden", {x, x + 1}}};
  });
  const auto x = numbers(1, {7, 2});
  const auto y = model->forward(x);
  ASSERT_EQ(y.size(), 2u);
  EXPECT_TRUE(y.at("logits").at(0).equal(x * 2));
  EXPECT_TRUE(y.at("hidden").at(1).equal(x + 1));
}

TEST(DataParallelValues, GathersVectorsTuplesPairsAndNumbers) {
  using Lists = std::pair<std::vector<at::Tensor>, std::tuple<at::Tensor, at::Tensor>>;
  auto model = replicas_that<Lists, at::Tensor>([](auto&, at::Tensor x) {
    return Lists{{x, x * 2}, {x.sum(), at::Tensor()}};
  });
  const auto x = at::ones({7, 2}, at::kDouble);
  const auto [list, both] = model->forward(x);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[1].equal(x * 2));
  EXPECT_THAT(flat(std::get<0>(both)), ElementsAre(6, 6, 2));
  EXPECT_FALSE(std::get<1>(both).defined());
}

TEST(DataParallelValues, RejectsInputsWithDifferentNumbersOfChunks) {
  auto model = replicas_that<at::Tensor, at::Tensor, at::Tensor>(
      [](auto&, at::Tensor x, at::Tensor) { return x; });
  const auto refusal = [&](at::IntArrayRef second) {
    return error_of<ConfigError>([&] {
      model->forward(at::ones({6, 1}), at::ones(second));
    });
  };
  EXPECT_THAT(refusal({4, 1}), HasSubstr("shape [4, 1] makes 2 chunks, expected 3"));
  EXPECT_THAT(refusal({}), HasSubstr("shape [] makes 0 chunks, expected 3"));
  EXPECT_EQ(refusal({5, 1}), "(no error)");
}

TEST(DataParallelValues, RejectsOutputsWithDifferentLengthsOrKeys) {
  using Map = std::map<std::string, std::vector<at::Tensor>>;
  auto model = replicas_that<Map, at::Tensor, bool>([](auto&, at::Tensor x, bool keys) {
    const auto rows = static_cast<size_t>(x.size(0));
    return keys ? Map{{rows == 3 ? "first" : "last", {x}}}
                : Map{{"all", std::vector<at::Tensor>(rows, x)}};
  });
  const auto refusal = [&](bool keys) {
    return error_of<ConfigError>([&] { model->forward(at::ones({7, 1}), keys); });
  };
  EXPECT_THAT(refusal(true), HasSubstr("are last,1, expected first,1,"));
  EXPECT_THAT(refusal(false), HasSubstr("are all,1, expected all,3,"));
}

}  // namespace tandem::data_parallel_values_test
