// What DataParallel divides among its replicas, and what it makes of their outputs.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Optional.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/parallel/ddp/data_parallel_module.h"
#include "tests/core/expect.h"
#include "tests/parallel/ddp/does.h"
#include "tests/parity/numbers.h"

namespace tandem::data_parallel_values_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor rows_of(const at::Tensor& x) {
  return at::full({1}, x.size(0), at::kLong);
}

Numbers chunk_sizes(int64_t rows, int64_t replicas) {
  auto model = rows_model([](Rows&, auto x) { return rows_of(x); }, replicas);
  return flat(model->forward(at::ones({rows, 3}, at::kDouble)));
}

TEST(DataParallelValues, DividesABatchAsTorchChunk) {
  EXPECT_THAT(chunk_sizes(7, 3), ElementsAre(3, 3, 1));
  EXPECT_THAT(chunk_sizes(64, 3), ElementsAre(22, 22, 20));
  EXPECT_THAT(chunk_sizes(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(chunk_sizes(4, 3), ElementsAre(2, 2));
  EXPECT_THAT(chunk_sizes(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(chunk_sizes(1, 4), ElementsAre(1));
  EXPECT_THAT(chunk_sizes(0, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(chunk_sizes(7, 1), ElementsAre(7));
}

TEST(DataParallelValues, AnEmptyBatchHasAnEmptyOutputAndZeroGradients) {
  torch::nn::Linear net(3, 2);
  DataParallel<torch::nn::Linear> model(net, 3);
  const auto y = model->forward(at::ones({0, 3}));
  EXPECT_THAT(y.sizes().vec(), ElementsAre(0, 2));
  y.sum().backward();
  EXPECT_TRUE(net->weight.grad().eq(0).all().item<bool>());
}

TEST(DataParallelValues, TakesTensorsInContainersAndCopiesTheRest) {
  using Optional = std::optional<at::Tensor>;
  using Torchs = c10::optional<at::Tensor>;
  using Pair = std::pair<std::vector<at::Tensor>, std::tuple<at::Tensor, double>>;
  auto model = replicas_that<
      at::Tensor, at::Tensor, Pair, Optional, Torchs, Optional, int, bool>(
      [](auto&, at::Tensor x, Pair pair, Optional given, Torchs theirs, Optional none,
         int number, bool flag) {
        const auto& [tensor, factor] = pair.second;
        EXPECT_FALSE(none.has_value());
        EXPECT_TRUE(flag);
        EXPECT_EQ(given->size(0), x.size(0));
        return x + pair.first[1] * 10 + tensor * factor + *given + *theirs + number;
      });
  const auto x = numbers(1, {7, 2});
  const Pair pair = {{x, x + 1}, {x + 2, 0.5}};
  const auto y =
      model->forward(x, pair, Optional(x + 3), Torchs(x + 4), Optional(), 5, true);
  const auto expected = x + (x + 1) * 10 + (x + 2) * 0.5 + (x + 3) + (x + 4) + 5;
  EXPECT_TRUE(y.equal(expected));
}

TEST(DataParallelValues, PassesUndefinedTensorsOn) {
  auto model = replicas_that<at::Tensor, at::Tensor, at::Tensor>(
      [](auto&, at::Tensor x, at::Tensor mask) {
        return mask.defined() ? x * mask : x;
      });
  const auto x = numbers(1, {4, 2});
  EXPECT_TRUE(model->forward(x, at::Tensor()).equal(x));
}

TEST(DataParallelValues, WithoutATensorAllReplicasComputeTheSame) {
  auto model = replicas_that<at::Tensor, int>(
      [](auto&, int number) { return at::full({1}, number, at::kDouble); });
  EXPECT_THAT(flat(model->forward(4)), ElementsAre(4, 4, 4));
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

TEST(DataParallelValues, InputsAndOutputsThatDoNotFitAreRefused) {
  auto two = replicas_that<at::Tensor, at::Tensor, at::Tensor>(
      [](auto&, at::Tensor x, at::Tensor) { return x; });
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        two->forward(at::ones({6, 1}), at::ones({4, 1}));
      }),
      AllOf(HasSubstr("6 rows makes 3 chunks"), HasSubstr("4 rows 2")));
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        two->forward(at::ones({6, 1}), at::ones({}));
      }),
      HasSubstr("no dimension to divide"));
  auto lists =
      replicas_that<std::vector<at::Tensor>, at::Tensor>([](auto&, at::Tensor x) {
        return std::vector<at::Tensor>(static_cast<size_t>(x.size(0)), x);
      });
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        lists->forward(at::ones({7, 1}));
      }),
      AllOf(HasSubstr("a list of 3"), HasSubstr("another one of 1")));
}

}  // namespace tandem::data_parallel_values_test
