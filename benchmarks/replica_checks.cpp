// Cost of the checks of DistributedDataParallel in a custom loop: time of a step
// without a check, and of a check, in turn. Prints medians and quartiles, and the cost
// of a check in every 100th step as a share of a step.
//
//   tandem launch --nproc-per-node 2 bench_replica_checks [ROUNDS]

#include <fmt/core.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tandem/comm/join/join.h"
#include "tandem/data/sampler.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"

namespace {

constexpr int kStepsPerCheck = 10;

template <typename Action>
double microseconds(const Action& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  const std::chrono::duration<double, std::micro> time =
      std::chrono::steady_clock::now() - begin;
  return time.count();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

std::string describe(const std::vector<double>& values) {
  return fmt::format(
      "{:.1f} ({:.1f} to {:.1f}) us", quantile(values, 0.5), quantile(values, 0.25),
      quantile(values, 0.75));
}

void measure(tandem::Communicator& comm, int64_t in, int64_t width, int rounds) {
  torch::nn::Sequential net(
      torch::nn::Linear(in, width), torch::nn::ReLU(), torch::nn::Linear(width, 10));
  tandem::DistributedDataParallelOptions options;
  options.check_every = 0;
  tandem::DistributedDataParallel ddp(*net, comm, options);
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  const auto inputs = torch::randn({32, in}) + comm.rank();
  const auto samples = tandem::shard_indices({4096, comm.size(), comm.rank()}, 0);
  std::vector<double> steps;
  std::vector<double> checks;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kStepsPerCheck; ++i) {
      steps.push_back(microseconds([&] {
        optimizer.zero_grad();
        net->forward(inputs).square().mean().backward();
        optimizer.step();
      }));
    }
    checks.push_back(microseconds([&] { ddp.check(); }));
  }
  if (comm.rank() == 0) {
    fmt::print(
        "{} x {} x 10: step {}, check {}, cost {:.3f} %\n", in, width, describe(steps),
        describe(checks), quantile(checks, 0.5) / quantile(steps, 0.5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 500;
  auto run = tandem::join_run();
  torch::set_num_threads(1);
  measure(*run.comm, 20, 64, rounds);
  measure(*run.comm, 784, 128, rounds);
  measure(*run.comm, 784, 1024, rounds);
}
