#include "tandem/graph/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/exec/threads.h"
#include "tests/graph/graphs.h"
#include "tests/named.h"

namespace tandem::attention_test {

struct Case {
  const char* name;
  int64_t queries;
  int64_t keys;
  int64_t depth = 32;
  int64_t groups = 4;
  bool is_causal = false;
  // "", "bool" or "float"
  const char* mask = "";
};

using tandem::operator<<;

constexpr int64_t kBatch = 3;
constexpr int64_t kHeads = 4;

// Returns values as views, as a network splits one product into query, key and value.
at::Tensor heads(int64_t positions, int64_t count, int64_t depth, double shift) {
  const auto all = (waves({kBatch, positions, 3 * count * depth}) * 40 + shift).sin();
  return all.narrow(2, count * depth, count * depth)
      .view({kBatch, positions, count, depth})
      .transpose(1, 2);
}

at::Tensor mask_of(const Case& p) {
  const auto numbers = (waves({kBatch, 1, p.queries, p.keys}) * 70).sin();
  // Each query reads at least one key.
  return p.mask == std::string("bool")
             ? (numbers > -0.3)
                   .logical_or(numbers.argmax(-1, true).eq(at::arange(p.keys)))
         : p.mask == std::string("float") ? numbers.select(0, 0).squeeze(0)
                                          : at::Tensor();
}

// Output and gradients of query, key and value.
std::vector<at::Tensor> run(const Case& p, at::ScalarType dtype, bool by_kernels) {
  Attention attention;
  std::vector<at::Tensor> leaves;
  const auto leaf = [&](int64_t positions, int64_t count, double shift) {
    leaves.push_back(heads(positions, count, p.depth, shift).to(dtype));
    return leaves.back().requires_grad_(true);
  };
  attention.query = leaf(p.queries, kHeads, 0);
  attention.key = leaf(p.keys, p.groups, 1);
  attention.value = leaf(p.keys, p.groups, 2);
  attention.mask = mask_of(p);
  if (attention.mask.defined() && attention.mask.scalar_type() != at::kBool) {
    attention.mask = attention.mask.to(dtype);
  }
  attention.scale = 1 / std::sqrt(static_cast<double>(p.depth));
  attention.is_causal = p.is_causal;
  attention.grouped = p.groups != kHeads;
  EXPECT_EQ(fits_attention_kernels(attention), dtype == at::kFloat);
  const auto output = by_kernels
                          ? attention_by_kernels(attention)
                          : weighted_values(attention, attention_weights(attention));
  output.mul(output + 1).sum().backward();
  std::vector<at::Tensor> results = {output.detach()};
  for (const auto& tensor : leaves) {
    results.push_back(tensor.grad());
  }
  return results;
}

class Kernels : public testing::TestWithParam<Case> {};

TEST_P(Kernels, AreAsExactAsOperators) {
  const auto exact = run(GetParam(), at::kDouble, false);
  const auto operators = run(GetParam(), at::kFloat, false);
  const auto kernels = run(GetParam(), at::kFloat, true);
  const char* const names[] = {"output", "query", "key", "value"};
  // With one key, the gradients of query and key are zero, a difference of equal sums.
  const double slack = 5e-7 * exact[3].norm().item<double>();
  for (size_t i = 0; i < exact.size(); ++i) {
    const auto error = [&](const at::Tensor& found) {
      return (found - exact[i]).norm().item<double>();
    };
    EXPECT_LE(error(kernels[i]), 2 * error(operators[i]) + slack) << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Attention, Kernels,
    testing::Values(
        Case{"OnePosition", 1, 1}, Case{"FewPositions", 7, 7}, Case{"OneQuery", 1, 50},
        Case{"SeveralTiles", 130, 130}, Case{"LargeDepth", 30, 40, 128},
        Case{"SmallDepth", 30, 40, 16}, Case{"Causal", 64, 64, 32, 4, true},
        Case{"CausalOfFewKeys", 60, 20, 32, 4, true},
        Case{"CausalOfManyKeys", 20, 60, 32, 4, true},
        Case{"BoolMask", 33, 41, 32, 4, false, "bool"},
        Case{"FloatMask", 33, 41, 32, 4, false, "float"},
        Case{"CausalWithMask", 33, 41, 32, 4, true, "float"},
        Case{"GroupedHeads", 26, 26, 32, 2, true},
        Case{"OneGroup", 26, 26, 32, 1, false, "bool"}),
    testing::PrintToStringParamName());

Attention small() {
  Attention attention;
  attention.query = heads(5, 2, 16, 0).to(at::kFloat);
  attention.key = heads(6, 2, 16, 1).to(at::kFloat);
  attention.value = heads(6, 2, 16, 2).to(at::kFloat);
  attention.scale = 0.25;
  return attention;
}

TEST(AttentionKernels, ReturnNanForQueriesWithoutKeys) {
  Attention attention = small();
  attention.mask = at::ones({5, 6}, at::kBool);
  attention.mask.select(0, 2).fill_(false);
  const auto found = attention_by_kernels(attention);
  EXPECT_TRUE(found.select(2, 2).isnan().all().item<bool>());
  EXPECT_FALSE(found.select(2, 1).isnan().any().item<bool>());
}

TEST(AttentionKernels, PropagateNan) {
  Attention attention = small();
  attention.key.select(2, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(attention_by_kernels(attention).isnan().all().item<bool>());
}

TEST(AttentionKernels, HaveEqualBitsForAnyNumberOfThreads) {
  const Case grouped = {"", 26, 26, 32, 2, true};
  std::vector<std::vector<at::Tensor>> found;
  for (const int threads : {1, 3}) {
    const Threads some(threads);
    found.push_back(run(grouped, at::kFloat, true));
  }
  for (size_t i = 0; i < found[0].size(); ++i) {
    EXPECT_TRUE(found[0][i].equal(found[1][i])) << i;
  }
}

TEST(AttentionKernels, DoNotOverflow) {
  Attention attention = small();
  attention.query.mul_(1e4);
  const auto found = attention_by_kernels(attention);
  const auto expected = weighted_values(attention, attention_weights(attention));
  EXPECT_TRUE(found.allclose(expected, 1e-5, 1e-6));
}

TEST(AttentionKernels, RefuseOtherDepthsDtypesAndTrainedMasks) {
  EXPECT_TRUE(fits_attention_kernels(small()));
  auto depth = small();
  for (auto* x : {&depth.query, &depth.key, &depth.value}) {
    *x = x->narrow(3, 0, 8);
  }
  EXPECT_FALSE(fits_attention_kernels(depth));
  auto mask = small();
  mask.mask = at::ones({5, 6}).requires_grad_(true);
  EXPECT_FALSE(fits_attention_kernels(mask));
  auto dtype = small();
  dtype.value = dtype.value.to(at::kBFloat16);
  EXPECT_FALSE(fits_attention_kernels(dtype));
}

}  // namespace tandem::attention_test
