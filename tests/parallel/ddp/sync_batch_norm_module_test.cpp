// SyncBatchNorm on several ranks against batch norm of LibTorch on one.

#include "tandem/parallel/ddp/sync_batch_norm_module.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::sync_batch_norm_module_test {

using testing::HasSubstr;
using torch::nn::BatchNormOptions;

constexpr int64_t kChannels = 3;

at::Tensor wave(const std::vector<int64_t>& dims, double phase) {
  const int64_t count =
      std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  return at::sin(0.7 * at::arange(count, at::kDouble) + phase).view(dims);
}

struct Result {
  at::Tensor output;
  at::Tensor grad_input;
  std::vector<at::Tensor> grads;
  std::vector<at::Tensor> buffers;
};

// Runs two training passes, of which the second one is returned, and one evaluation.
template <typename Module>
Result run(Module& module, const at::Tensor& x, int64_t begin, int64_t end) {
  module->to(at::kDouble);
  Result result;
  for (const double factor : {1.0, 2.0}) {
    module->zero_grad();
    auto mine = (factor * x).slice(0, begin, end).detach().requires_grad_(true);
    result.output = module->forward(mine);
    const auto weights = wave(x.sizes().vec(), 2).slice(0, begin, end);
    (result.output * weights).sum().backward();
    result.grad_input = mine.grad();
  }
  for (const auto& parameter : module->parameters()) {
    result.grads.push_back(parameter.grad());
  }
  module->eval();
  result.buffers = module->buffers();
  result.buffers.push_back(module->forward(x));
  return result;
}

void expect_close(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-12);
}

void expect_the_values_of_one_process(const BatchNormOptions& options) {
  const auto x = wave({7, kChannels, 2, 4}, 1);
  torch::nn::BatchNorm2d whole(options);
  const Result expected = run(whole, x, 0, 7);
  // The first samples of each rank, and the end.
  for (const std::vector<int64_t>& bounds :
       {std::vector<int64_t>{0, 7}, {0, 3, 7}, {0, 2, 6, 7}, {0, 3, 3, 5, 7}}) {
    const int size = static_cast<int>(bounds.size()) - 1;
    const auto all = on_each_rank("thread", size, [&](Communicator& comm) {
      SyncBatchNorm norm(options, comm);
      const auto rank = static_cast<size_t>(comm.rank());
      return run(norm, x, bounds[rank], bounds[rank + 1]);
    });
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> grad_inputs;
    std::vector<at::Tensor> grads;
    for (const auto& rank : all) {
      outputs.push_back(rank.output);
      grad_inputs.push_back(rank.grad_input);
      for (size_t i = 0; i < rank.buffers.size(); ++i) {
        expect_close(rank.buffers[i], expected.buffers[i]);
      }
      for (size_t i = 0; i < rank.grads.size(); ++i) {
        grads.resize(rank.grads.size());
        grads[i] = grads[i].defined() ? grads[i] + rank.grads[i] : rank.grads[i];
      }
    }
    expect_close(at::cat(outputs), expected.output);
    expect_close(at::cat(grad_inputs), expected.grad_input);
    ASSERT_EQ(grads.size(), expected.grads.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      expect_close(grads[i], expected.grads[i]);
    }
  }
}

TEST(SyncBatchNorm, HasTheValuesOfOneProcess) {
  expect_the_values_of_one_process(BatchNormOptions(kChannels));
  expect_the_values_of_one_process(BatchNormOptions(kChannels).eps(0.1).momentum(0.4));
  expect_the_values_of_one_process(
      BatchNormOptions(kChannels).momentum(torch::nullopt).affine(false));
  expect_the_values_of_one_process(
      BatchNormOptions(kChannels).track_running_stats(false));
}

TEST(SyncBatchNorm, RejectsOtherShapes) {
  const auto comm = make_single_communicator();
  SyncBatchNorm norm(BatchNormOptions(kChannels), *comm);
  const auto refusal = [&](const std::vector<int64_t>& dims) {
    return error_of<ConfigError>([&] { norm->forward(at::zeros(dims)); });
  };
  EXPECT_THAT(refusal({3}), HasSubstr("shape [3], expected samples x 3 channels"));
  EXPECT_THAT(refusal({2, 4}), HasSubstr("shape [2, 4], expected samples x 3"));
  EXPECT_THAT(refusal({1, 3}), HasSubstr("SyncBatchNorm"));
}

}  // namespace tandem::sync_batch_norm_module_test
