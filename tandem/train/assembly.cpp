#include "tandem/train/assembly.h"

#include <fmt/core.h>

#include "tandem/base/error.h"

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

Loss loss_of(const RunConfig& config) {
  Loss loss;
  loss.kind =
      config.loss == "auto" ? default_loss(config) : parse_loss_kind(config.loss);
  loss.reduction = config.reduction == "sum" ? Reduction::sum : Reduction::mean;
  return loss;
}

ModelOptions model_options(const RunConfig& config, const Dataset& data) {
  const int64_t border = 2 * pad_of(config);
  ModelOptions options;
  options.input = {data.channels, data.height + border, data.width + border};
  options.num_classes = data.num_classes;
  options.seed = static_cast<uint64_t>(config.seed);
  options.dtype = config.precision == "fp64" ? at::kDouble : at::kFloat;
  return options;
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

StrategyOptions strategy_options(const RunConfig& config) {
  StrategyOptions options;
  options.name = config.strategy;
  options.sync = parse_sync_mode(config.sync);
  options.buffers = parse_buffer_sync(config.buffers);
  options.loss = loss_of(config);
  options.clip_norm = config.clip_norm;
  options.bucket_bytes = config.bucket_bytes;
  return options;
}

}  // namespace

Assembly assemble(
    const RunConfig& config, const Dataset& train, Communicator& comm,
    std::unique_ptr<Model> model) {
  Assembly parts;
  parts.model =
      model ? std::move(model) : make_model(config.model, model_options(config, train));
  ModelArenaOptions arena_options;
  arena_options.divisor = comm.size();
  if (!config.decay_bias_and_norm) {
    arena_options.group_of = [](const NamedTensor& parameter) {
      return parameter.tensor.dim() < 2 ? kNoDecayGroup : 0;
    };
  }
  parts.arenas = std::make_unique<ModelArenas>(
      parts.model->parameters(), parts.model->buffers(), arena_options);
  const std::vector<ParameterGroup> groups = {{1, 1}, {1, 0}};
  parts.optimizer = make_optimizer(
      optimizer_options(config), parts.arenas->parameters(), parts.arenas->gradients(),
      groups);
  StageOptions stage;
  stage.loss = loss_of(config);
  parts.executor = make_executor(config.executor, *parts.model, *parts.arenas, stage);
  parts.strategy = make_strategy(
      strategy_options(config),
      {comm, *parts.executor, *parts.arenas, *parts.optimizer});
  return parts;
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
