// Compares losses, gradients and metrics with PyTorch's, in float64, on one to three
// ranks with one and two micro-batches. The cases and the model are those of the peer,
// tests/parity/loss_peer.py.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/parallel/update/arena_update.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"
#include "tests/parity/numbers.h"
#include "tests/parity/python.h"

namespace tandem::loss_parity_test {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-9;
constexpr int64_t kSamples = 11;
constexpr int64_t kBatch = 4;
constexpr int64_t kPositions = 3;
constexpr int64_t kOutputs = 5;

struct Case {
  const char* name;
  LossKind loss;
  int64_t positions = 0;
  int64_t ignore_index = kNoIgnoredClass;
};
const Case kCases[] = {
    {"cross_entropy", LossKind::cross_entropy},
    {"ignored", LossKind::cross_entropy, 0, 2},
    {"positions", LossKind::cross_entropy, kPositions},
    {"ignored_positions", LossKind::cross_entropy, kPositions, 2},
    {"nll_positions", LossKind::nll, kPositions, 2},
    {"mse", LossKind::mse},
    {"mse_positions", LossKind::mse, kPositions},
    {"l1", LossKind::l1},
    {"bce", LossKind::bce}};

struct Data {
  at::Tensor inputs;
  at::Tensor targets;
};

Data data_of(const Case& which) {
  std::vector<int64_t> shape = {kSamples};
  if (which.positions > 0) {
    shape.push_back(which.positions);
  }
  auto wide = shape;
  wide.push_back(4);
  Data data{numbers(1, wide), {}};
  if (row_of(which.loss).of_numbers) {
    wide.back() = kOutputs;
    data.targets = numbers(3, wide);
    if (which.loss == LossKind::bce) {
      data.targets = data.targets.add(0.625).div(1.25);
    }
  } else {
    const auto index = at::arange(numbers(0, shape).numel());
    data.targets = index.mul(7).add(3).remainder(11).remainder(kOutputs).view(shape);
  }
  return data;
}

// Returns the micro-batches of a rank in the step that begins with the sample `first`.
// Samples go to the ranks in turn. The last step has three samples.
std::vector<Batch> batches_of(
    const Case& which, const Data& data, int64_t first, int64_t micro_batches,
    const Communicator& comm) {
  const int64_t end = std::min(first + kBatch, kSamples);
  const auto step = data.targets.slice(0, first, end);
  const bool classes = !row_of(which.loss).of_numbers;
  const auto ignored = [&](const at::Tensor& targets) {
    return classes ? targets.eq(which.ignore_index).sum().item<int64_t>() : 0;
  };
  const int64_t count = classes ? step.numel() - ignored(step) : step.size(0);
  std::vector<Batch> batches;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const int64_t begin = first + comm.rank() + micro * comm.size();
    const int64_t stride = comm.size() * micro_batches;
    if (begin < end) {
      Batch batch;
      batch.inputs = data.inputs.slice(0, begin, end, stride);
      batch.targets = data.targets.slice(0, begin, end, stride).contiguous();
      batch.ignored = ignored(batch.targets);
      batch.global_count = count;
      batches.push_back(batch);
    }
  }
  return batches;
}

struct Seen {
  std::vector<at::Tensor> sums;
  std::vector<Numbers> weights;
};

Seen train(const Case& which, int64_t micro_batches, Communicator& comm) {
  const auto data = data_of(which);
  const auto weight = numbers(2, {4, kOutputs}).clone().set_requires_grad(true);
  Loss loss{which.loss, Reduction::mean};
  loss.ignore_index = which.ignore_index;
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::sgd;
  Replica replica(
      make_function_model(
          [weight](const at::Tensor& x) { return x.matmul(weight); },
          {{"weight", weight}}),
      comm, {}, optimizer, loss);
  replica.strategy->start();
  Seen seen;
  for (int64_t first = 0; first < kSamples; first += kBatch) {
    const auto batches = batches_of(which, data, first, micro_batches, comm);
    seen.sums.push_back(replica.strategy->train_step(batches, step_of(0.5)).tensor());
    seen.weights.push_back(flat(weight));
  }
  return seen;
}

// Returns the largest difference.
double compare(
    const Json& theirs, const Case& which, int ranks, int64_t micro_batches) {
  SCOPED_TRACE(
      std::string(which.name) + " on " + std::to_string(ranks) + " ranks, " +
      std::to_string(micro_batches) + " micro-batches");
  const auto seen = on_each_rank("thread", ranks, [&](Communicator& comm) {
    return train(which, micro_batches, comm);
  });
  Numbers losses;
  auto all = at::zeros({3}, at::kDouble);
  for (size_t step = 0; step < seen[0].sums.size(); ++step) {
    auto sums = at::zeros({3}, at::kDouble);
    for (const auto& rank : seen) {
      sums += rank.sums[step];
    }
    losses.push_back(StepSums(sums).values().mean_loss());
    all += sums;
  }
  double largest = difference(losses, theirs["losses"].get<Numbers>());
  EXPECT_LE(largest, kTolerance);
  for (const auto& rank : seen) {
    const double of_weights = difference(rank.weights, theirs["weights"]);
    EXPECT_LE(of_weights, kTolerance);
    largest = std::max(largest, of_weights);
  }
  EXPECT_NEAR(all[1].item<double>(), theirs["metric"].get<double>(), kTolerance);
  EXPECT_EQ(all[2].item<double>(), theirs["count"].get<double>());
  return largest;
}

TEST(LossParity, LossesGradientsAndMetricsMatchPyTorch) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto peer = results_of_peer("loss_peer.py");
  ASSERT_EQ(peer.size(), std::size(kCases));
  for (const auto& which : kCases) {
    double largest = 0;
    for (int ranks = 1; ranks <= 3; ++ranks) {
      for (const int64_t micro_batches : {1, 2}) {
        largest = std::max(
            largest, compare(peer.at(which.name), which, ranks, micro_batches));
      }
    }
    std::printf("%-18s largest difference %.1e\n", which.name, largest);
  }
}

// The loss of a rank that steps alone is the mean over its own targets.
TEST(LossParity, RanksThatStepAloneCountTheirOwnTargets) {
  const auto comm = make_single_communicator();
  for (const auto& which : kCases) {
    SCOPED_TRACE(which.name);
    const auto data = data_of(which);
    const auto batches = batches_of(which, data, 0, 2, *comm);
    EXPECT_EQ(count_in_loss(batches), batches[0].global_count);
  }
}

}  // namespace tandem::loss_parity_test
