#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/buffers.h"
#include "tandem/comm/communicator.h"
#include "tandem/data/loader.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/model/model.h"
#include "tandem/model/stages.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/optim/optimizer.h"
#include "tandem/parallel/pipeline/grid.h"
#include "tandem/parallel/statistics_group.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Returns the layers of a small variant of the model `net` for 8 x 8 images, with two
/// convolutions and two dropout layers.
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

/// Returns the layers of a small model for 8 x 8 images, with a convolution and batch
/// norm.
inline std::vector<Layer> batch_norm_layers() {
  return {
      conv2d("conv", 1, 3, 3), batch_norm2d("bn", 3), relu(), max_pool2d(2), flatten(),
      linear("fc", 27, 5),     log_softmax()};
}

inline StepContext step_of(double lr) {
  StepContext context;
  context.lr = lr;
  return context;
}

inline std::unique_ptr<Model> make_small_model(
    const std::vector<Layer>& layers, uint64_t seed = 1,
    const StackFunction& stack_statistics = {}) {
  ModelOptions options;
  options.input = {1, 8, 8};
  options.stack_statistics = stack_statistics;
  options.seed = seed;
  options.dtype = at::kDouble;
  return make_layered_model(layers, options);
}

/// Returns a data set of `size` images of noise, with 8 x 8 pixels, in 5 classes.
inline Dataset noise_images(int64_t size) {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  uint32_t state = 12345;
  for (int64_t i = 0; i < size * 64; ++i) {
    state = state * 1664525 + 1013904223;
    pixels.push_back(static_cast<uint8_t>(state >> 24));
    if (i % 64 == 0) {
      labels.push_back(static_cast<uint8_t>(state >> 20) % 5);
    }
  }
  Dataset dataset;
  dataset.size = size;
  dataset.inputs.shape = {1, 8, 8};
  dataset.num_classes = 5;
  dataset.inputs.bytes = pixels;
  dataset.targets.bytes = labels;
  return dataset;
}

/// Returns the first batch of a shard of noise_images(60) in an epoch.
inline Batch first_batch(
    int64_t batch_size, int64_t num_shards = 1, int64_t shard = 0, int64_t epoch = 0) {
  SamplerOptions sampler;
  sampler.num_shards = num_shards;
  sampler.shard = shard;
  LoaderOptions options;
  options.batch_size = batch_size;
  Loader loader(noise_images(60), sampler, options);
  loader.seek(epoch);
  Batch batch;
  TANDEM_CHECK(loader.next(batch), "the loader has no batch");
  return batch;
}

/// Returns the options for the stage of a rank. In a pipeline, removes all layers of
/// other stages from `model`.
inline StageOptions stage_of(
    Model& model, const Communicator& comm, const StrategyOptions& options,
    const Loss& loss) {
  StageOptions stage;
  stage.loss = loss;
  if (options.kind == StrategyKind::pipeline) {
    const Grid grid =
        make_grid(options.stages, options.replicas, comm.rank(), comm.size());
    keep_stage(model, grid.stages, grid.stage);
    stage.first = grid.stage == 0;
    stage.last = grid.stage + 1 == grid.stages;
  }
  return stage;
}

/// Returns options that put arenas into the communication buffers of a group, as in a
/// training run.
inline ModelArenaOptions in_buffers_of(
    Communicator& comm, const StrategyOptions& strategy,
    const Placement& placement = {}) {
  ModelArenaOptions options;
  options.bucket_bytes = strategy.largest_bucket();
  options.device = placement.device;
  options.divisor = comm.size();
  options.allocate_parameters = buffers_of(comm);
  options.allocate_gradients = buffers_of(comm);
  return options;
}

/// Model, executor, optimizer and strategy of one rank.
struct Replica {
  std::unique_ptr<Model> model;
  StageOptions stage;
  ModelArenas arenas;
  std::unique_ptr<StageExecutor> executor;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Strategy> strategy;

  Replica(
      std::unique_ptr<Model> from, Communicator& comm, const StrategyOptions& options,
      const OptimizerOptions& optimizer_options,
      const Loss& loss = {LossKind::nll, Reduction::mean}, bool scaled = false,
      const Placement& placement = {})
      : model(std::move(from)),
        stage(stage_of(*model, comm, options, loss)),
        arenas(
            model->parameters(), model->buffers(),
            in_buffers_of(comm, options, placement)),
        executor(make_eager_executor(*model, arenas, stage)),
        optimizer(make_optimizer(
            optimizer_options, arenas.parameters(), arenas.gradients())) {
    if (options.shard >= Sharding::gradients) {
      arenas.gradients().release_on_zero();
    }
    if (scaled) {
      optimizer = make_scaled_optimizer(std::move(optimizer), {});
    }
    strategy = make_strategy(options, {comm, *executor, arenas, *optimizer, loss});
  }

  /// Returns all parameters of this rank as one flat tensor.
  at::Tensor parameters() const {
    return flat(model->parameters());
  }
  /// Returns all buffers of this rank as one flat tensor.
  at::Tensor buffers() const {
    return flat(model->buffers());
  }

  /// Returns copies of the parameters of the whole model. In a pipeline, only rank 0
  /// returns all parameters; other ranks return those of their stage. Collective.
  std::vector<NamedTensor> whole_parameters() const {
    const bool in_stages = strategy->consistency() == Consistency::sharded;
    strategy->complete_parameters();
    std::vector<NamedTensor> whole;
    for (const auto& [name, tensor] :
         in_stages ? strategy->collect_state().model : arenas.state()) {
      const auto kind = name.substr(name.rfind('.') + 1);
      if (kind == "weight" || kind == "bias") {
        whole.push_back({name, tensor.detach().clone()});
      }
    }
    return whole;
  }

 private:
  static at::Tensor flat(const std::vector<NamedTensor>& tensors) {
    std::vector<at::Tensor> parts = {at::zeros({0}, at::kDouble)};
    for (const auto& entry : tensors) {
      parts.push_back(entry.tensor.detach().cpu().to(at::kDouble).reshape(-1));
    }
    return at::cat(parts).clone();
  }
};

struct RunOptions {
  StrategyOptions strategy;
  Loss loss;
  OptimizerOptions optimizer;
  std::vector<Layer> layers = small_net_layers();
  uint64_t seed = 5;
  // Number of samples in a step, over all ranks and micro-batches. The last step of an
  // epoch may have fewer.
  int64_t global_batch = 24;
  int64_t micro_batches = 1;
  int64_t data_size = 60;
  Tail tail = Tail::pad;
  int64_t epochs = 2;
  double lr = 0.05;
  // True if the optimizer has a GradScaler.
  bool scaled = false;
  // Device of the replica.
  Placement placement;

  RunOptions() {
    loss.kind = LossKind::nll;
    // With this size, the model of small_net_layers() has four buckets.
    strategy.bucket_bytes = 2'000;
    optimizer.momentum = 0.9;
  }
};

struct RunResult {
  // Flat tensor of Replica::whole_parameters().
  at::Tensor parameters;
  at::Tensor buffers;
  std::string sha256;
  // Sums over this rank's steps: {loss, number of correct samples, number of samples}.
  at::Tensor sums;
  // Strategy::gradient_norm() after the last step; NaN if there is none.
  double gradient_norm = 0;
};

/// Returns the layers without dropout layers, because dropout masks depend on the
/// device.
inline std::vector<Layer> without_dropout(std::vector<Layer> layers) {
  const auto is_dropout = [](const Layer& layer) {
    return layer.kind == LayerKind::dropout || layer.kind == LayerKind::dropout2d;
  };
  layers.erase(std::remove_if(layers.begin(), layers.end(), is_dropout), layers.end());
  return layers;
}

/// Returns the layers of the model `net` of tutorial 003, with dropout, for
/// noise_images().
inline std::vector<Layer> net_layers() {
  ModelOptions options;
  options.input = {1, 8, 8};
  options.num_classes = 5;
  return layers_of(ModelKind::net, options);
}

/// Returns the layers of the model `convnet_bn` of tutorial 004, for noise_images().
inline std::vector<Layer> convnet_bn_layers() {
  ModelOptions options;
  options.input = {1, 8, 8};
  options.num_classes = 5;
  return layers_of(ModelKind::convnet_bn, options);
}

/// Trains a small model on this rank's share of noise_images().
inline RunResult train_small_net(Communicator& comm, const RunOptions& options) {
  const bool sync = options.strategy.buffers == BufferSync::sync;
  StatisticsGroup statistics(comm);
  const auto stack = [&](const at::Tensor& mine) { return statistics.stack(mine); };
  Replica replica(
      make_small_model(
          options.layers, 1, sync ? StackFunction(stack) : StackFunction()),
      comm, options.strategy, options.optimizer, options.loss, options.scaled,
      options.placement);
  replica.strategy->start();
  const DataShard shard = replica.strategy->data_shard();
  const bool reads = shard.shard >= 0;
  SamplerOptions sampler;
  sampler.num_shards = shard.num_shards;
  sampler.shard = reads ? shard.shard : 0;
  sampler.seed = options.seed;
  sampler.tail = options.tail;
  LoaderOptions loading;
  loading.batch_size =
      options.global_batch / sampler.num_shards / options.micro_batches;
  loading.micro_batches = options.micro_batches;
  loading.num_buffers = options.micro_batches;
  loading.empty_batches = sync;
  loading.ignore_index = options.loss.ignore_index;
  const auto data = noise_images(options.data_size);
  use_device(loading, data, options.placement);
  Loader loader(data, sampler, loading);
  RunResult result;
  StepContext context;
  context.seed = options.seed;
  context.lr = options.lr;
  for (context.epoch = 0; context.epoch < options.epochs; ++context.epoch) {
    loader.seek(context.epoch);
    for (int64_t left = loader.num_steps(); left > 0; --left) {
      std::vector<Batch> batches;
      Batch batch;
      while (reads && static_cast<int64_t>(batches.size()) < options.micro_batches &&
             loader.next(batch)) {
        batches.push_back(batch);
      }
      const auto sums = replica.strategy->train_step(batches, context).tensor();
      result.sums = result.sums.defined() ? result.sums + sums : sums;
      ++context.step;
    }
  }
  result.gradient_norm = replica.strategy->gradient_norm().value_or(std::nan(""));
  result.buffers = replica.buffers();
  const auto whole = replica.whole_parameters();
  std::vector<at::Tensor> flat;
  for (const auto& entry : whole) {
    flat.push_back(entry.tensor.cpu().reshape(-1));
  }
  result.parameters = at::cat(flat);
  result.sha256 = ModelArenas(whole, {}).parameters_sha256();
  return result;
}

/// Trains a small model on all samples of noise_images() with the sequential strategy.
inline RunResult train_sequentially(RunOptions options) {
  options.strategy.kind = StrategyKind::sequential;
  const auto comm = make_single_communicator();
  return train_small_net(*comm, options);
}

/// Returns the largest absolute difference of `a` and `b`, divided by the largest
/// absolute value in `b`.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace tandem
