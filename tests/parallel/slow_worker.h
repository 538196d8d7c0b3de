#pragma once

// Training with an asynchronous parameter server and one worker that is ten times
// slower than the other workers. Ranks are threads or processes.

#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tests/parallel/replica.h"

namespace tandem {

/// Returns a linear model whose forward pass first sleeps for `pause`.
inline std::unique_ptr<Model> make_slow_model(std::chrono::milliseconds pause) {
  auto weight = (at::arange(320, at::kDouble).view({64, 5}) / 320).sin() / 10;
  weight.set_requires_grad(true);
  return make_function_model(
      [=](const at::Tensor& x) {
        std::this_thread::sleep_for(pause);
        return x.flatten(1).to(at::kDouble).matmul(weight).log_softmax(1);
      },
      {{"weight", weight}});
}

struct SlowWorkerResult {
  // Staleness of each update, at the server; empty at workers.
  std::vector<int64_t> staleness;
  // SHA-256 of this rank's parameters after the run.
  std::string sha256;
  // Sum of the results of all calls of train_step().
  at::Tensor sums;
};

/// Makes `steps` steps with an asynchronous parameter server. The last rank is ten
/// times slower than the other workers.
inline SlowWorkerResult run_with_slow_worker(
    Communicator& comm, int64_t max_staleness, int64_t steps) {
  StrategyOptions options;
  options.kind = StrategyKind::parameter_server;
  options.server_updates = ServerUpdates::asynchronous;
  options.max_staleness = max_staleness;
  OptimizerOptions optimizer;
  optimizer.lr = 0.01;
  const bool slow = comm.rank() + 1 == comm.size();
  Replica replica(
      make_slow_model(std::chrono::milliseconds(slow ? 20 : 2)), comm, options,
      optimizer);
  replica.strategy->start();
  const DataShard shard = replica.strategy->data_shard();
  SamplerOptions sampler;
  sampler.num_shards = shard.num_shards;
  sampler.shard = std::max<int64_t>(0, shard.shard);
  LoaderOptions loading;
  loading.batch_size = 4;
  Loader loader(noise_images(4 * shard.num_shards * steps), sampler, loading);
  loader.seek(0);
  Trace trace;
  StepContext context;
  context.lr = 0.01;
  context.trace = &trace;
  SlowWorkerResult result;
  result.sums = at::zeros({3}, at::kDouble);
  for (; context.step < steps; ++context.step) {
    std::vector<Batch> batches(shard.shard >= 0 ? 1 : 0);
    for (auto& batch : batches) {
      TANDEM_CHECK(loader.next(batch), "the loader has no batch");
    }
    result.sums += replica.strategy->train_step(batches, context).tensor();
  }
  replica.strategy->end_epoch(true);
  replica.strategy->before_evaluation();
  result.sha256 = replica.arenas.parameters_sha256();
  const std::string word = "staleness ";
  for (const auto& span : trace.compute_spans()) {
    const size_t at = span.name.find(word);
    if (at != std::string::npos) {
      result.staleness.push_back(std::atoll(span.name.c_str() + at + word.size()));
    }
  }
  return result;
}

}  // namespace tandem
