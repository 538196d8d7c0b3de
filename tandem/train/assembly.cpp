#include "tandem/train/assembly.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/comm/buffers.h"
#include "tandem/config/name_patterns.h"
#include "tandem/data/normalization.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/graph/single_values.h"
#include "tandem/model/model_file.h"
#include "tandem/model/stages.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/pipeline/grid.h"
#include "tandem/parallel/strategies/shared_parameters.h"
#include "tandem/train/device_limits.h"
#include "tandem/train/fine_tuning.h"
#include "tandem/train/model_checks.h"
#include "tandem/train/recomputation.h"

namespace tandem {

namespace {

// Returns the rank's position; without a pipeline, each rank is a replica.
Grid grid_of(const StrategyOptions& options, const Communicator& comm) {
  return has_trait(options.kind, kHasStages)
             ? make_grid(options.stages, options.replicas, comm.rank(), comm.size())
             : Grid{1, comm.size(), 0, comm.rank()};
}

// A pipeline and recomputation need the graph of a program's own module.
void record_layers(const RunConfig& config, const ModelOptions& options, Model& model) {
  const bool has_stages = has_trait(config.strategy.kind, kHasStages);
  if ((!has_stages && config.exec.recompute.empty()) || model.graph() != nullptr) {
    return;
  }
  const std::string reason = model.record_graph(
      options.input, options.index_input ? at::kLong : options.dtype);
  if (!reason.empty() && has_stages) {
    throw ConfigError(
        "[model] a pipeline needs the layers of the model, but " + reason +
        "; choose --strategy data_parallel, or a network of torch.export (--model)");
  }
}

// Returns whether the run resumes from a checkpoint. Only the host of rank 0 needs the
// checkpoint. Collective.
bool resumes(const RunConfig& config, Communicator& comm) {
  return !config.output.resume.empty() &&
         comm.on_rank_0([&] { return goes_on(config) ? "yes" : "no"; }, "resume") ==
             "yes";
}

// Returns whether this rank needs the initial values of the parameters. If ranks divide
// them, rank 0 sends each rank its part.
bool needs_values(const RunConfig& config, const Communicator& comm) {
  return comm.rank() == 0 || config.strategy.shard != Sharding::parameters;
}

std::unique_ptr<Model> model_of(
    const RunConfig& config, const Dataset& train, std::unique_ptr<Model> own,
    const std::shared_ptr<StatisticsGroup>& statistics, Communicator& comm) {
  if (own && !config.model.dropout) {
    throw ConfigError(
        "[model] --no-dropout does not apply to the program's own model, which "
        "controls its dropout; omit --no-dropout");
  }
  if (own && statistics != nullptr) {
    throw ConfigError(
        "[model] --buffers sync does not apply to the program's own model, which "
        "computes its batch norm; change --buffers to broadcast or average");
  }
  ModelOptions options = model_options(config, train);
  options.has_values = needs_values(config, comm);
  if (statistics != nullptr) {
    options.stack_statistics = [statistics](const at::Tensor& mine) {
      return statistics->stack(mine);
    };
  }
  auto model = own ? std::move(own) : make_model(config, options);
  record_layers(config, options, *model);
  // A resumed run gets the weights of its checkpoint, and the file of config.model.init
  // may no longer exist.
  if (!resumes(config, comm) && !config.model.init.empty()) {
    load_weights(
        config.model.init, model->state(),
        parse_patterns("init_skip", config.model.init_skip));
  }
  freeze_parameters(config.model.freeze, *model);
  return model;
}

// Returns the value of Assembly::needs_two_samples.
std::string needs_two_samples(const Model& model) {
  const Graph* graph = model.graph();
  const Node* norm = graph == nullptr ? nullptr : find_single_value_norm(*graph);
  return norm == nullptr ? "" : name_for_messages(*norm);
}

// Returns the value of Assembly::num_classes.
int64_t num_classes_of(const Dataset& train, const Model& model) {
  const Graph* graph = model.graph();
  if (graph == nullptr || !train.has_classes() || train.targets.shape.empty()) {
    return train.num_classes;
  }
  const auto shape = sizes_at(graph->value(graph->output).shape, 1);
  const auto dim = class_dim(static_cast<int64_t>(shape.size()));
  return dim < static_cast<int64_t>(shape.size())
             ? std::max(train.num_classes, shape[static_cast<size_t>(dim)])
             : train.num_classes;
}

// The output of a convolution has the layout of its weights. Arenas keep this layout,
// and gradients have it too.
void use_channels_last(const Model& model) {
  for (const auto& parameter : model.parameters()) {
    if (parameter.tensor.dim() == 4) {
      parameter.tensor.set_data(
          parameter.tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
}

// Resolves `automatic` for these ranks. Over shared memory, distributing updated
// parameters costs less than updating all parameters on each rank.
Sharding settle_sharding(
    const StrategyOptions& options, const Communicator& comm,
    const Optimizer& optimizer) {
  if (options.shard != Sharding::automatic || !has_trait(options.kind, kSharesUpdate)) {
    return options.shard;
  }
  return comm.shares_memory() && grid_of(options, comm).replicas > 1 &&
                 !optimizer.needs_whole_tensors()
             ? Sharding::optimizer
             : Sharding::none;
}

// Throws ConfigError if the ranks do not make the same steps: with stacked statistics,
// each forward pass waits for the statistics of all other ranks.
void check_all_ranks_step_together(
    const Strategy& strategy, const Communicator& comm, const std::string& name) {
  if (!strategy.in_lockstep() || strategy.data_shard().num_shards != comm.size()) {
    throw ConfigError(
        "[parallel] --buffers sync needs ranks that make the same steps on different "
        "samples, but ranks of strategy " +
        name + " do not; change --strategy to data_parallel, or --buffers");
  }
}

void check_placement(
    const RunConfig& config, const Communicator& comm, const Placement& placement) {
  if (!placement.is_elsewhere()) {
    if (config.exec.precision == Precision::tf32) {
      throw ConfigError(
          "[device] precision tf32 needs a GPU, but the model is in main memory; use "
          "--precision fp32, or --device cuda");
    }
    return;
  }
  if (!comm.takes(*placement.device)) {
    throw ConfigError(fmt::format(
        "[device] the model is on {}, but {} ranks exchange only tensors in main "
        "memory; use make_device_communicator(), one rank, or the CPU",
        placement.device->str(), comm.size()));
  }
  const std::string obstacle = device_obstacle(config);
  if (!obstacle.empty()) {
    throw ConfigError(fmt::format(
        "[device] the model is on {}, but {}; use --strategy data_parallel, or "
        "--device cpu",
        placement.device->str(), obstacle));
  }
}

// Throws ConfigError unless the loss is for targets of this type.
void check_targets(LossKind loss, bool targets_are_numbers) {
  if (row_of(loss).of_numbers && !targets_are_numbers) {
    throw ConfigError(fmt::format(
        "[config] loss is {}, which needs targets that are numbers, but every target "
        "here is a class; use --loss auto, cross_entropy, nll or "
        "softmax_cross_entropy",
        name_of(loss)));
  }
  if (!row_of(loss).of_numbers && targets_are_numbers) {
    throw ConfigError(fmt::format(
        "[config] loss is {}, which needs targets that are classes, but the targets "
        "here are numbers; use --loss auto, mse, l1 or bce",
        name_of(loss)));
  }
}

// Compares the model's outputs with the targets. In a function model, the number of
// outputs is known only after a forward pass, so the executor compares it.
void compare_outputs(const Dataset& train, const Model& model, StageOptions& stage) {
  if (stage.loss.own) {
    return;
  }
  if (model.graph() == nullptr) {
    stage.num_classes = stage.loss.of_numbers() ? 0 : train.num_classes;
    return;
  }
  const Graph& graph = *model.graph();
  std::vector<int64_t> shape;
  int64_t outputs = 1;
  for (const auto& size : graph.value(graph.output).shape) {
    shape.push_back(size.at(1));
    outputs *= shape.back();
  }
  if (stage.loss.of_numbers()) {
    check_num_numbers(outputs, train.targets.numel());
  } else if (!train.targets.shape.empty()) {
    auto targets = train.targets.shape;
    targets.insert(targets.begin(), 1);
    check_output_shape(shape, targets, train.num_classes);
  } else {
    check_num_outputs(outputs, train.num_classes);
  }
}

// Reduces `model` to the stage of this rank. Returns the options of the stage.
StageOptions stage_of(
    const RunConfig& config, const Dataset& train, const Communicator& comm,
    Model& model, LossFunction loss) {
  StageOptions options;
  options.loss = loss_of(config, model.graph(), !train.has_classes());
  options.loss.own = std::move(loss);
  check_label_smoothing(
      config.model,
      options.loss.own ? "the program's own" : name_of(options.loss.kind));
  compare_outputs(train, model, options);
  check_model(config, model, options.loss, comm);
  options.numerics = numerics_of(config.exec);
  if (!has_trait(config.strategy.kind, kHasStages)) {
    return options;
  }
  const Grid grid = grid_of(config.strategy, comm);
  const Cut cut{split(config.strategy.cut, ','), config.strategy.balance};
  const auto stages = keep_stage(model, grid.stages, grid.stage, cut);
  if (comm.rank() == 0) {
    log_info(fmt::format(
        "[parallel] {} x {}: {}", counted(grid.stages, "stage"),
        counted(grid.replicas, "replica"), stages));
  }
  if (comm.rank() == 0 && has_trait(config.strategy.kind, kWantsMicroBatches) &&
      config.training.accumulate < grid.stages) {
    log_warning(fmt::format(
        "[parallel] {} of {} stages are always idle with {} micro-batches per step; "
        "raise --accumulate and lower --batch-size",
        grid.stages - config.training.accumulate, grid.stages,
        config.training.accumulate));
  }
  options.first = grid.stage == 0;
  options.last = grid.stage + 1 == grid.stages;
  return options;
}

ModelArenaOptions arena_options(
    const RunConfig& config, const Model& model, const GroupedParameters& grouped,
    Communicator& comm, const Placement& placement) {
  ModelArenaOptions options;
  options.device = placement.device;
  options.divisor = comm.size();
  options.bucket_bytes = config.strategy.largest_bucket();
  options.group_of = [&grouped](const NamedTensor& parameter) {
    return grouped.group_of.at(parameter.name);
  };
  options.copy_parameters = needs_values(config, comm);
  options.allocate_gradients = buffers_of(comm);
  options.allocate_parameters = has_trait(config.strategy.kind, kSharesParameters)
                                    ? share_parameters(comm, model.parameters())
                                    : buffers_of(comm);
  return options;
}

std::unique_ptr<Optimizer> optimizer_of(
    const RunConfig& config, const std::vector<ParameterGroup>& groups,
    ModelArenas& arenas) {
  auto optimizer =
      make_optimizer(config.optimizer, arenas.parameters(), arenas.gradients(), groups);
  const auto scale = scaler_options(config.exec);
  return scale ? make_scaled_optimizer(std::move(optimizer), *scale)
               : std::move(optimizer);
}

}  // namespace

Assembly assemble(
    const RunConfig& config, const Dataset& train, Communicator& comm,
    std::unique_ptr<Model> model, LossFunction loss, const Placement& placement) {
  check_placement(config, comm, placement);
  Assembly parts;
  if (config.strategy.buffers == BufferSync::sync) {
    parts.statistics = std::make_shared<StatisticsGroup>(comm);
  }
  parts.model = model_of(config, train, std::move(model), parts.statistics, comm);
  if (parts.statistics == nullptr) {
    parts.needs_two_samples = needs_two_samples(*parts.model);
  }
  parts.num_classes = num_classes_of(train, *parts.model);
  if (config.exec.channels_last) {
    use_channels_last(*parts.model);
  }
  parts.parameter_names = tensor_names(parts.model->parameters());
  const auto grouped = group_parameters(config.optimizer, *parts.model);
  check_recompute(config.exec, *parts.model);
  StageOptions stage = stage_of(config, train, comm, *parts.model, std::move(loss));
  const int64_t first_trained = has_trait(config.strategy.kind, kHasStages)
                                    ? find_first_trained_stage(*parts.model, comm)
                                    : 0;
  stage.gathers_parameters = config.strategy.shard == Sharding::parameters;
  stage.frozen_before = grid_of(config.strategy, comm).stage <= first_trained;
  const std::string recomputed =
      recompute_values(config.exec, config.training.batch_size, *parts.model, stage);
  if (!recomputed.empty()) {
    log_info(recomputed);
  }
  parts.arenas = std::make_unique<ModelArenas>(
      parts.model->parameters(), parts.model->buffers(),
      arena_options(config, *parts.model, grouped, comm, placement));
  if (config.strategy.shard >= Sharding::gradients) {
    parts.arenas->gradients().release_on_zero();
  }
  // Returns the memory of the first copies of the parameters to the system.
  malloc_trim(0);
  ModelArenas* updated = parts.arenas.get();
  if (updates_elsewhere(config.strategy, comm)) {
    parts.no_arenas = std::make_unique<ModelArenas>(
        std::vector<NamedTensor>{}, std::vector<NamedTensor>{});
    updated = parts.no_arenas.get();
  }
  parts.optimizer = optimizer_of(config, grouped.groups, *updated);
  stage.stacked_statistics = parts.statistics != nullptr;
  parts.executor = make_executor(
      config.exec.executor, *parts.model, *parts.arenas, stage,
      &parts.executor_passed_over);
  parts.loss = stage.loss;
  StrategyOptions strategy = config.strategy;
  strategy.shard = settle_sharding(strategy, comm, *parts.optimizer);
  parts.shard = strategy.shard;
  parts.strategy = make_strategy(
      strategy, {comm, *parts.executor, *parts.arenas, *parts.optimizer, stage.loss,
                 first_trained});
  if (parts.statistics != nullptr) {
    check_all_ranks_step_together(*parts.strategy, comm, name_of(config.strategy.kind));
  }
  return parts;
}

ModelOptions model_options(const RunConfig& config, const Dataset& data) {
  const int64_t border = 2 * row_of(config.model.kind).pad;
  ModelOptions options;
  options.input = data.inputs.shape;
  if (border > 0 && options.input.size() == 3) {
    options.input[1] += border;
    options.input[2] += border;
  }
  options.index_input = data.has_indices();
  options.num_classes = data.num_classes;
  options.seed = static_cast<uint64_t>(config.training.seed);
  options.dtype = numerics_of(config.exec).storage;
  options.dropout = config.model.dropout;
  return options;
}

std::unique_ptr<Model> make_model(
    const RunConfig& config, const ModelOptions& options) {
  if (options.index_input && config.model.kind != ModelKind::file) {
    throw ConfigError(fmt::format(
        "[model] model is {}, which needs numbers, but the samples are indices "
        "(int64); set --model to a network file, or save the samples as float32",
        name_of(config.model.kind)));
  }
  return config.model.kind == ModelKind::file
             ? load_model_file(network_file(config), options)
             : make_model(config.model.kind, options);
}

// Throws ConfigError if the model's outputs are the logarithms of probabilities, which
// are never positive, but the loss is for any numbers.
void check_outputs_are_numbers(
    const RunConfig& config, const Graph* graph, LossKind loss) {
  const bool is_file = config.model.kind == ModelKind::file;
  const bool is_log_softmax = is_file ? graph != nullptr && ends_in_log_softmax(*graph)
                                      : row_of(config.model.kind).loss == LossKind::nll;
  if (row_of(loss).of_numbers && is_log_softmax) {
    throw ConfigError(fmt::format(
        "[config] loss is {}, but model {} ends in a log-softmax, whose outputs are "
        "never positive; choose another --model, such as lenet3x3",
        name_of(loss), config.model.model()));
  }
}

Loss loss_of(const RunConfig& config, const Graph* graph, bool targets_are_numbers) {
  LossKind kind = config.model.loss;
  if (kind == LossKind::automatic && targets_are_numbers) {
    kind = LossKind::mse;
  } else if (kind == LossKind::automatic) {
    const bool is_file = config.model.kind == ModelKind::file;
    kind = is_file && graph != nullptr && ends_in_log_softmax(*graph)
               ? LossKind::nll
               : row_of(config.model.kind).loss;
  }
  check_targets(kind, targets_are_numbers);
  check_outputs_are_numbers(config, graph, kind);
  Loss loss{kind, config.model.reduction};
  loss.label_smoothing = config.model.label_smoothing;
  loss.ignore_index = config.model.ignore_index;
  return loss;
}

LoaderOptions loader_options(const RunConfig& config, const Dataset& data) {
  DataOptions settled = config.data;
  settle_normalization(settled, data);
  LoaderOptions options;
  options.batch_size = config.training.batch_size;
  options.mean = settled.mean.values();
  options.std = settled.std.values();
  options.target_mean = settled.target_mean.values();
  options.target_std = settled.target_std.values();
  options.pad = row_of(config.model.kind).pad;
  options.ignore_index = config.model.ignore_index;
  return options;
}

}  // namespace tandem
