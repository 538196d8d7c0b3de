#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/data/loader.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/model/model.h"
#include "tandem/optim/optimizer.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// `net` in small: convolutions, both its dropouts, 64-bit floats. For 8 x 8 images.
inline std::vector<Layer> small_net_layers() {
  return {
      conv2d("conv1", 1, 4, 3),
      relu(),
      conv2d("conv2", 4, 6, 3),
      relu(),
      max_pool2d(2),
      dropout(0.25),
      flatten(),
      linear("fc1", 24, 12),
      relu(),
      dropout(0.5),
      linear("fc2", 12, 5),
      log_softmax()};
}

inline std::unique_ptr<Model> make_small_model(
    const std::vector<Layer>& layers, uint64_t seed = 1) {
  ModelOptions options;
  options.seed = seed;
  options.dtype = at::kDouble;
  return make_layered_model(layers, options);
}

/// 8 x 8 images of noise in 5 classes.
inline Dataset noise_images(int64_t size) {
  auto pixels = std::make_shared<std::vector<uint8_t>>();
  auto labels = std::make_shared<std::vector<uint8_t>>();
  uint32_t state = 12345;
  for (int64_t i = 0; i < size * 64; ++i) {
    state = state * 1664525 + 1013904223;
    pixels->push_back(static_cast<uint8_t>(state >> 24));
    if (i % 64 == 0) {
      labels->push_back(static_cast<uint8_t>(state >> 20) % 5);
    }
  }
  Dataset dataset;
  dataset.size = size;
  dataset.height = dataset.width = 8;
  dataset.num_classes = 5;
  dataset.pixels = pixels;
  dataset.labels = labels;
  return dataset;
}

/// One rank's parts, put together.
struct Replica {
  std::unique_ptr<Model> model;
  ModelArenas arenas;
  std::unique_ptr<StageExecutor> executor;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Strategy> strategy;

  Replica(
      std::unique_ptr<Model> from, Communicator& comm, const StrategyOptions& options,
      const OptimizerOptions& optimizer_options)
      : model(std::move(from)),
        arenas(model->parameters(), model->buffers()),
        executor(make_eager_executor(*model, arenas, {options.loss, true, true})),
        optimizer(
            make_optimizer(optimizer_options, arenas.parameters(), arenas.gradients())),
        strategy(make_strategy(options, {comm, *executor, arenas, *optimizer})) {}

  /// All parameters, one after the other.
  at::Tensor parameters() const {
    std::vector<at::Tensor> flat;
    for (const auto& entry : model->parameters()) {
      flat.push_back(entry.tensor.detach().reshape(-1));
    }
    return at::cat(flat).clone();
  }
};

struct RunOptions {
  StrategyOptions strategy;
  OptimizerOptions optimizer;
  std::vector<Layer> layers = small_net_layers();
  uint64_t seed = 5;
  // Of all ranks and micro-batches together; the last batch may be shorter.
  int64_t global_batch = 24;
  int64_t micro_batches = 1;
  int64_t data_size = 60;
  int64_t epochs = 2;
  double lr = 0.05;

  RunOptions() {
    strategy.loss.kind = LossKind::nll;
    // Four buckets of the small net.
    strategy.bucket_bytes = 2'000;
    optimizer.momentum = 0.9;
  }
};

struct RunResult {
  at::Tensor parameters;
  std::string sha256;
  // Of all steps: loss, right answers, samples of this rank.
  at::Tensor sums;
};

/// Trains on this rank's share of noise_images().
inline RunResult train_small_net(Communicator& comm, const RunOptions& options) {
  Replica replica(
      make_small_model(options.layers), comm, options.strategy, options.optimizer);
  replica.strategy->start();
  SamplerOptions sampler;
  sampler.num_shards = replica.strategy->data_shard().num_shards;
  sampler.shard = replica.strategy->data_shard().shard;
  sampler.seed = options.seed;
  LoaderOptions loading;
  loading.batch_size =
      options.global_batch / sampler.num_shards / options.micro_batches;
  loading.num_buffers = options.micro_batches;
  Loader loader(noise_images(options.data_size), sampler, loading);
  RunResult result;
  StepContext context;
  context.seed = options.seed;
  context.lr = options.lr;
  for (context.epoch = 0; context.epoch < options.epochs; ++context.epoch) {
    loader.seek(context.epoch);
    for (;;) {
      std::vector<Batch> batches;
      Batch batch;
      while (static_cast<int64_t>(batches.size()) < options.micro_batches &&
             loader.next(batch)) {
        batches.push_back(batch);
      }
      if (batches.empty()) {
        break;
      }
      const auto sums = replica.strategy->train_step(batches, context);
      result.sums = result.sums.defined() ? result.sums + sums : sums;
      ++context.step;
    }
  }
  result.parameters = replica.parameters();
  result.sha256 = replica.arenas.parameters_sha256();
  return result;
}

/// The same by the sequential strategy.
inline RunResult train_sequentially(RunOptions options) {
  options.strategy.name = "sequential";
  const auto comm = make_single_communicator();
  return train_small_net(*comm, options);
}

/// Largest difference over largest value.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace tandem
