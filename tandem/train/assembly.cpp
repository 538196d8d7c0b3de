#include "tandem/train/assembly.h"

#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/comm/buffers.h"
#include "tandem/config/loss_setting.h"
#include "tandem/model/stages.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/pipeline/grid.h"
#include "tandem/parallel/strategies/parameter_server.h"
#include "tandem/parallel/strategies/shared_parameters.h"

namespace tandem {

namespace {

// "decay_bias_and_norm = false" puts vectors (biases, norms) into this group.
constexpr int64_t kNoDecayGroup = 1;

LossKind default_loss(const RunConfig& config) {
  return config.model == kCustomModel ? LossKind::cross_entropy
                                      : find_model(config.model).loss;
}

int64_t pad_of(const RunConfig& config) {
  return config.model == kCustomModel ? 0 : find_model(config.model).pad;
}

ModelOptions model_options(
    const RunConfig& config, const Dataset& data,
    const std::shared_ptr<StatisticsGroup>& statistics) {
  const int64_t border = 2 * pad_of(config);
  ModelOptions options;
  options.input = {data.channels, data.height + border, data.width + border};
  options.num_classes = data.num_classes;
  options.seed = static_cast<uint64_t>(config.seed);
  options.dtype = config.precision == "fp64" ? at::kDouble : at::kFloat;
  options.dropout = config.dropout;
  if (statistics != nullptr) {
    options.stack_statistics = [statistics](const at::Tensor& mine) {
      return statistics->stack(mine);
    };
  }
  return options;
}

std::unique_ptr<Model> model_of(
    const RunConfig& config, const Dataset& train, std::unique_ptr<Model> own,
    const std::shared_ptr<StatisticsGroup>& statistics) {
  if (own && !config.dropout) {
    throw ConfigError(
        "[model] the program's own model decides about its dropout; leave out "
        "--no-dropout");
  }
  if (own && statistics != nullptr) {
    throw ConfigError(
        "[model] the program's own model computes its batch norm itself; change "
        "--buffers sync to broadcast or average");
  }
  auto model = own ? std::move(own)
                   : make_model(config.model, model_options(config, train, statistics));
  // A checkpoint's weights would replace them, and their file may be gone by then.
  if (!config.init.empty() && !goes_on(config)) {
    auto state = model->parameters();
    const auto buffers = model->buffers();
    state.insert(state.end(), buffers.begin(), buffers.end());
    load_weights(config.init, state);
  }
  return model;
}

OptimizerOptions optimizer_options(const RunConfig& config) {
  OptimizerOptions options;
  options.name = config.optimizer;
  options.lr = config.lr;
  options.weight_decay = config.weight_decay;
  options.eps = config.eps;
  options.momentum = config.momentum;
  options.dampening = config.dampening;
  options.nesterov = config.nesterov;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.amsgrad = config.amsgrad;
  options.rho = config.rho;
  return options;
}

// Over shared memory handing out parameters costs less than updating them all.
bool shards_optimizer(const RunConfig& config, const Communicator& comm) {
  return config.optimizer_state == "sharded" ||
         (config.optimizer_state == "auto" && config.strategy == "data_parallel" &&
          comm.backend() == "shm");
}

StrategyOptions strategy_options(const RunConfig& config, const Communicator& comm) {
  StrategyOptions options;
  options.name = config.strategy;
  options.sync = parse_sync_mode(config.sync);
  options.buffers = parse_buffer_sync(config.buffers);
  options.loss = loss_of(config);
  options.clip_norm = config.clip_norm;
  options.bucket_bytes = config.bucket_bytes;
  options.comm_hook = parse_comm_hook(config.comm_hook);
  options.shard_optimizer = shards_optimizer(config, comm);
  options.average_every = parse_average_every(config.average_every);
  options.stages = config.stages;
  options.replicas = config.replicas;
  options.pipeline_schedule = parse_pipeline_schedule(config.pipeline_schedule);
  options.asynchronous = config.server_updates == "asynchronous";
  options.max_staleness = config.max_staleness;
  return options;
}

// The other strategies update parameters where nobody sees all gradients.
void check_scales_loss(const RunConfig& config) {
  if (config.strategy != "data_parallel" && config.strategy != "sequential") {
    throw ConfigError(
        "[parallel] --loss-scale works with --strategy data_parallel or sequential, "
        "not "
        "with " +
        config.strategy + "; change one of them");
  }
}

// Each forward pass of a rank waits for all others'.
void check_all_ranks_step_together(
    const Strategy& strategy, const Communicator& comm, const std::string& name) {
  if (strategy.consistency() != Consistency::replicated ||
      strategy.data_shard().num_shards != comm.size()) {
    throw ConfigError(
        "[parallel] --buffers sync needs ranks that all make the same steps on samples "
        "of their own, which those of strategy " +
        name + " do not; change --strategy to data_parallel, or --buffers");
  }
}

bool strategy_has(const std::string& name, bool StrategyEntry::*property) {
  const auto& table = strategy_table();
  return std::any_of(table.begin(), table.end(), [&](const StrategyEntry& entry) {
    return name == entry.name && entry.*property;
  });
}

// Leaves in `model` what this rank computes.
StageOptions stage_of(
    const RunConfig& config, const Dataset& train, const Communicator& comm,
    Model& model) {
  StageOptions options;
  options.loss = loss_of(config);
  options.bf16 = config.precision == "bf16";
  if (!strategy_has(config.strategy, &StrategyEntry::has_stages)) {
    if (config.stages > 1) {
      throw ConfigError(fmt::format(
          "[parallel] strategy {} does not divide the model into {} stages; use "
          "--strategy pipeline, or leave out --stages",
          config.strategy, config.stages));
    }
    return options;
  }
  const Grid grid = make_grid(config.stages, config.replicas, comm.rank(), comm.size());
  const auto input = model_options(config, train, nullptr).input;
  const auto stages = keep_stage(model, input, grid.stages, grid.stage);
  if (comm.rank() == 0) {
    log_info(fmt::format(
        "[parallel] {} stages x {} replicas: {}", grid.stages, grid.replicas, stages));
  }
  if (comm.rank() == 0 && config.strategy == "pipeline" &&
      config.accumulate < grid.stages) {
    log_warning(fmt::format(
        "[parallel] {} micro-batches a step leave {} of {} stages without work at any "
        "time; raise --accumulate and lower --batch-size",
        config.accumulate, grid.stages - config.accumulate, grid.stages));
  }
  options.first = grid.stage == 0;
  options.last = grid.stage + 1 == grid.stages;
  return options;
}

}  // namespace

Assembly assemble(
    const RunConfig& config, const Dataset& train, Communicator& comm,
    std::unique_ptr<Model> model) {
  TANDEM_CHECK(config.precision != "auto", "settle_precision() comes first");
  Assembly parts;
  if (parse_buffer_sync(config.buffers) == BufferSync::sync) {
    parts.statistics = std::make_shared<StatisticsGroup>(comm);
  }
  parts.model = model_of(config, train, std::move(model), parts.statistics);
  for (const auto& parameter : parts.model->parameters()) {
    parts.parameter_names.push_back(parameter.name);
  }
  StageOptions stage = stage_of(config, train, comm, *parts.model);
  ModelArenaOptions arena_options;
  arena_options.divisor = comm.size();
  if (!config.decay_bias_and_norm) {
    arena_options.group_of = [](const NamedTensor& parameter) {
      return parameter.tensor.dim() < 2 ? kNoDecayGroup : 0;
    };
  }
  arena_options.allocate_gradients = buffers_of(comm);
  arena_options.allocate_parameters = buffers_of(comm);
  if (config.strategy == kHogwild) {
    arena_options.allocate_parameters =
        share_parameters(comm, parts.model->parameters());
  }
  parts.arenas = std::make_unique<ModelArenas>(
      parts.model->parameters(), parts.model->buffers(), arena_options);
  const StrategyOptions strategy = strategy_options(config, comm);
  ModelArenas* updated = parts.arenas.get();
  if (updates_elsewhere(strategy, comm)) {
    parts.no_arenas = std::make_unique<ModelArenas>(
        std::vector<NamedTensor>{}, std::vector<NamedTensor>{});
    updated = parts.no_arenas.get();
  }
  const std::vector<ParameterGroup> groups = {{1, 1}, {1, 0}};
  parts.optimizer = make_optimizer(
      optimizer_options(config), updated->parameters(), updated->gradients(), groups);
  if (const auto scale = parse_loss_scale(config.loss_scale)) {
    parts.optimizer = make_scaled_optimizer(std::move(parts.optimizer), *scale);
  }
  stage.stacked_statistics = parts.statistics != nullptr;
  parts.executor = make_executor(
      config.executor, *parts.model, *parts.arenas, stage, &parts.executor_passed_over);
  parts.strategy =
      make_strategy(strategy, {comm, *parts.executor, *parts.arenas, *parts.optimizer});
  if (parts.optimizer->scaler() != nullptr) {
    check_scales_loss(config);
  }
  if (parts.statistics != nullptr) {
    check_all_ranks_step_together(*parts.strategy, comm, config.strategy);
  }
  if (strategy_has(config.strategy, &StrategyEntry::has_buckets)) {
    parts.optimizer_state = strategy.shard_optimizer ? "sharded" : "replicated";
  }
  return parts;
}

Loss loss_of(const RunConfig& config) {
  check_loss(config.loss);
  Loss loss;
  loss.kind =
      config.loss == "auto" ? default_loss(config) : parse_loss_kind(config.loss);
  loss.reduction = config.reduction == "sum" ? Reduction::sum : Reduction::mean;
  // PyTorch takes any numbers for log-probabilities, and lowers such a loss without
  // end.
  if (loss.kind == LossKind::nll && default_loss(config) != LossKind::nll &&
      config.model != kCustomModel) {
    throw ConfigError(
        "[model] loss nll takes log-probabilities, and model " + config.model +
        " has no log-softmax at its end; use --loss cross_entropy or auto");
  }
  return loss;
}

LoaderOptions loader_options(const RunConfig& config) {
  LoaderOptions options;
  options.batch_size = config.batch_size;
  options.mean = config.mean;
  options.std = config.std;
  options.pad = pad_of(config);
  return options;
}

std::map<std::string, std::string> describe_model(
    const RunConfig& config, const Dataset& dataset) {
  return {
      {"model", config.model},
      {"loss", config.loss},
      {"data", config.data},
      {"mean", fmt::format("{}", config.mean)},
      {"std", fmt::format("{}", config.std)},
      {"channels", std::to_string(dataset.channels)},
      {"height", std::to_string(dataset.height)},
      {"width", std::to_string(dataset.width)},
      {"num_classes", std::to_string(dataset.num_classes)},
      {"class_names", join(dataset.class_names, "\n")},
  };
}

RunConfig config_from(const std::map<std::string, std::string>& description) {
  RunConfig config;
  for (const char* key : {"model", "loss", "data", "mean", "std"}) {
    const auto found = description.find(key);
    if (found == description.end()) {
      throw DataError(
          "[checkpoint] the file does not say its " + std::string(key) +
          "; only tandem's own checkpoints can be evaluated");
    }
    set_field(config, find_field(key, "checkpoint"), found->second, "checkpoint");
  }
  return config;
}

LrScheduleOptions schedule_options(const RunConfig& config) {
  LrScheduleOptions options;
  options.name = config.schedule;
  options.gamma = config.gamma;
  options.step_size = config.step_size;
  options.min_lr = config.min_lr;
  options.pct_start = config.pct_start;
  options.div_factor = config.div_factor;
  options.final_div_factor = config.final_div_factor;
  options.warmup_steps = config.warmup_steps;
  return options;
}

}  // namespace tandem
