#include <fmt/core.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/config/fields.h"
#include "tandem/config/line_format.h"
#include "tandem/config/milestones.h"
#include "tandem/config/name_patterns.h"
#include "tandem/config/recompute_choice.h"

namespace tandem {

namespace {

// Throws ConfigError with a formatted message if a rule is violated.
template <typename... Values>
void refuse_if(
    bool violated, fmt::format_string<Values...> message, Values&&... values) {
  if (violated) {
    throw ConfigError(
        "[config] " + fmt::format(message, std::forward<Values>(values)...));
  }
}

void check_texts(const RunConfig& config) {
  const LineValues values;
  for (const auto& field : config_fields()) {
    if (field.type != Field::Type::text) {
      continue;
    }
    const std::string text = field.text(config);
    // Recipes and checkpoints can contain only UTF-8.
    refuse_if(
        find_invalid_utf8(text).has_value(),
        "{} is not UTF-8, expected UTF-8; change {}", field.name, field.flag());
    if (field.line_template) {
      format_line(field.name, text, values);
    }
  }
}

void check_model_file(const ModelSettings& model) {
  refuse_if(
      (model.kind == ModelKind::file) == model.file.empty(),
      "model.file is '{}' and model.kind is {}, expected a file if and only if the "
      "kind is file; change model.kind or model.file",
      model.file, name_of(model.kind));
}

void check_loss(const ModelSettings& model) {
  // PyTorch accepts any numbers as log-probabilities, but the loss then falls without
  // limit.
  refuse_if(
      model.loss == LossKind::nll && is_built_in(model.kind) &&
          row_of(model.kind).loss != LossKind::nll,
      "loss is nll, which needs log-probabilities, but model {} does not end in a "
      "log-softmax; use --loss cross_entropy or auto",
      name_of(model.kind));
  if (model.loss != LossKind::automatic) {
    check_label_smoothing(model, name_of(model.loss));
  } else if (is_built_in(model.kind)) {
    check_label_smoothing(model, name_of(row_of(model.kind).loss));
  }
}

void check_patterns(const RunConfig& config) {
  const auto skipped = parse_patterns("init_skip", config.model.init_skip);
  const bool starts = config.output.resume.empty();
  refuse_if(
      starts && !skipped.empty() && config.model.init.empty(),
      "init_skip is '{}', but init is empty; name the initial weights with --init, or "
      "leave out --init-skip",
      config.model.init_skip);
  static_cast<void>(parse_patterns("freeze", config.model.freeze));
  static_cast<void>(recompute_choice(config.exec));
  static_cast<void>(parse_pattern_factors("lr_factor", config.optimizer.lr_factor));
  static_cast<void>(parse_pattern_factors(
      "weight_decay_factor", config.optimizer.weight_decay_factor));
}

void check_schedule(const LrScheduleOptions& schedule) {
  if (schedule.kind == ScheduleKind::multistep) {
    static_cast<void>(parse_milestones(schedule.milestones));
  }
  refuse_if(
      schedule.kind == ScheduleKind::plateau && schedule.gamma >= 1,
      "gamma is {}, expected below 1 with schedule plateau; lower --gamma",
      schedule.gamma);
}

// Checks that no rank needs the labels of another rank's share.
void check_ignore_index(const RunConfig& config) {
  refuse_if(
      config.model.ignore_index >= 0 && config.data.share == Share::scatter,
      "ignore_index is {}, which needs the labels of all samples on every rank, but "
      "share is scatter; use --share sampler, or leave out --ignore-index",
      config.model.ignore_index);
}

// Checks that the strategy supports loss_scale, ema_decay, stages and the optimizer.
// With loss_scale, ranks skip a step whose gradients overflowed, so every rank needs
// all gradients.
void check_strategy(const RunConfig& config) {
  const auto& strategy = config.strategy;
  refuse_if(
      config.exec.loss_scale != ExecOptions::kNoScale &&
          !has_trait(strategy.kind, kScalesLoss),
      "loss_scale is set, which is for strategy data_parallel or sequential, not {}; "
      "leave out --loss-scale, or change --strategy",
      name_of(strategy.kind));
  refuse_if(
      config.optimizer.ema_decay > 0 && has_trait(strategy.kind, kTrainsAlone),
      "ema_decay is {}, which averages the parameters of one rank, but each rank of "
      "strategy {} trains its own; leave out --ema-decay, or change --strategy",
      config.optimizer.ema_decay, name_of(strategy.kind));
  refuse_if(
      strategy.stages > 1 && !has_trait(strategy.kind, kHasStages),
      "stages is {}, which is for strategy pipeline, not {}; use --strategy pipeline, "
      "or leave out --stages",
      strategy.stages, name_of(strategy.kind));
  refuse_if(
      strategy.shard > Sharding::none &&
          row_of(config.optimizer.kind).needs_whole_tensors,
      "shard is {}, which divides parameter tensors among ranks, but optimizer {} "
      "needs whole tensors; use --shard none, or change --optimizer",
      name_of(strategy.shard), name_of(config.optimizer.kind));
}

// Checks that no setting contradicts divide_batch, which uses every sample once and
// divides batches of one sample order among the ranks.
void check_divided_batch(const RunConfig& config) {
  if (!config.training.divide_batch) {
    return;
  }
  refuse_if(
      !has_trait(config.strategy.kind, kDividesBatch),
      "divide_batch is true, which is for strategy data_parallel or sequential, not "
      "{}; leave out --divide-batch, or change --strategy",
      name_of(config.strategy.kind));
  refuse_if(
      config.data.uneven == Uneven::drop || config.data.uneven == Uneven::error,
      "uneven is {}, but divide_batch uses every sample once; leave out --uneven or "
      "--divide-batch",
      name_of(config.data.uneven));
  refuse_if(
      config.data.share == Share::scatter,
      "share is scatter, which divides the samples among ranks, but divide_batch "
      "divides every batch; use --share sampler");
}

// Checks that settings that need the run directory have one.
void check_run_directory(const RunConfig& config) {
  const auto& output = config.output;
  refuse_if(
      output.resume == "auto" && output.out.empty(),
      "resume is auto, but out is empty; name the run directory with --out");
  refuse_if(
      output.tensorboard && output.out.empty(),
      "tensorboard is true, but out is empty, so no file is written; name the run "
      "directory with --out, or use --no-tensorboard");
  refuse_if(
      config.ranks.max_restarts > 0 && output.out.empty(),
      "max_restarts is {}, but out is empty, so there is no checkpoint to restart "
      "from; name the run directory with --out, or leave out --max-restarts",
      config.ranks.max_restarts);
  refuse_if(
      output.keep_best && output.out.empty(),
      "keep_best is true, but out is empty, so no checkpoint is saved; name the run "
      "directory with --out, or use --no-keep-best");
}

// Throws ConfigError if --patience or --keep-best would have no effect.
void check_watched_evaluations(const RunConfig& config) {
  const auto& output = config.output;
  const int64_t epochs = config.training.epochs;
  refuse_if(
      epochs > 1 && output.eval_every >= epochs &&
          (config.training.patience > 0 || output.keep_best),
      "{} compares evaluations, but eval_every is {}, so {} epochs have only one "
      "evaluation; lower --eval-every",
      output.keep_best ? "keep_best" : "patience", output.eval_every, epochs);
}

void check_one_host(const RunConfig& config) {
  if (config.ranks.nnodes == 1) {
    return;
  }
  const int64_t nodes = config.ranks.nnodes;
  refuse_if(
      config.ranks.kind == RankKind::thread,
      "rank_type is thread, which is for one host, but there are {} hosts; use "
      "--rank-type process",
      nodes);
  refuse_if(
      has_trait(config.strategy.kind, kSharesParameters),
      "strategy is {}, whose ranks share memory, but there are {} hosts; use --nnodes "
      "1, or --strategy averaging",
      name_of(config.strategy.kind), nodes);
  refuse_if(
      row_of(config.comm.backend).one_host,
      "backend is {}, which is for one host, but there are {} hosts; use --backend "
      "auto",
      name_of(config.comm.backend), nodes);
}

// Checks the settings of a run whose hosts may join and leave.
void check_changing_hosts(const RunConfig& config) {
  const auto& ranks = config.ranks;
  if (ranks.min_nnodes == 0) {
    return;
  }
  refuse_if(
      ranks.min_nnodes > ranks.nnodes,
      "nnodes is {}:{}, expected MIN:MAX with MIN at most MAX; change --nnodes, or "
      "--min-nnodes",
      ranks.min_nnodes, ranks.nnodes);
  refuse_if(
      config.output.out.empty(),
      "hosts may join and leave (min_nnodes), but out is empty, so there is no "
      "checkpoint to continue from; name the run directory with --out");
  refuse_if(
      config.strategy.kind != StrategyKind::data_parallel &&
          config.strategy.kind != StrategyKind::averaging,
      "strategy is {}, whose number of ranks is fixed, but hosts may join and leave "
      "(min_nnodes); use --strategy data_parallel or averaging, or leave out "
      "--min-nnodes",
      name_of(config.strategy.kind));
  refuse_if(
      config.data.share == Share::scatter,
      "share is scatter, which divides the data for a fixed number of ranks, but hosts "
      "may join and leave (min_nnodes); use --share sampler");
}

void check_device(const RunConfig& config) {
  refuse_if(
      config.comm.backend == BackendKind::nccl &&
          config.exec.device.kind == DeviceChoice::Kind::cpu,
      "backend is nccl, which is for GPUs, but device is cpu; use --device cuda, or "
      "--backend auto");
}

void check_ranks(const RunConfig& config) {
  const auto& ranks = config.ranks;
  const BackendKind backend = config.comm.backend;
  check_one_host(config);
  check_changing_hosts(config);
  refuse_if(
      ranks.node_rank >= ranks.nnodes,
      "node_rank is {}, expected 0 to {} for {} hosts; change --node-rank or --nnodes",
      ranks.node_rank, ranks.nnodes - 1, ranks.nnodes);
  const bool threads = ranks.kind == RankKind::thread;
  refuse_if(
      backend != BackendKind::automatic && (backend == BackendKind::thread) != threads,
      "backend is {}, which does not work with rank_type {}; use --backend auto",
      name_of(backend), name_of(ranks.kind));
  refuse_if(
      ranks.launcher == LauncherKind::mpirun && threads,
      "rank_type is thread, but mpirun starts processes; use --rank-type process, or "
      "--launcher tandem");
}

// Throws ConfigError if probabilities are normalized, or if only one of mean and std
// has numbers. The default of the other would rarely fit these numbers.
void check_normalization(const DataOptions& data, LossKind loss) {
  refuse_if(
      loss == LossKind::bce && has_normalized_targets(data),
      "target_mean is {} and target_std is {}, but loss is bce, whose targets are from "
      "0 to 1; leave out --target-mean and --target-std",
      data.target_mean.text(), data.target_std.text());
  using Kind = ChannelValues::Kind;
  const auto check_pair = [](const char* name, const ChannelValues& given,
                             const char* other_name, const ChannelValues& other) {
    refuse_if(
        given.kind() == Kind::given && other.kind() == Kind::standard,
        "{} is {}, but {} is {}, expected numbers for both; add --{} with numbers, or "
        "--{} auto",
        name, given.text(), other_name, other.text(), other_name, other_name);
  };
  check_pair("mean", data.mean, "std", data.std);
  check_pair("std", data.std, "mean", data.mean);
}

}  // namespace

int RunConfig::num_ranks_here() const {
  return ranks.nproc == RankOptions::kPerCpu ? usable_cpus()
                                             : static_cast<int>(ranks.nproc);
}

bool RunConfig::needs_mpirun() const {
  return ranks.launcher == LauncherKind::mpirun || row_of(comm.backend).has_launcher;
}

void check_label_smoothing(const ModelSettings& model, const std::string& loss) {
  refuse_if(
      model.label_smoothing != 0 && loss != name_of(LossKind::cross_entropy),
      "label_smoothing is {}, which is for loss cross_entropy, but the loss is {}; "
      "leave out --label-smoothing, or use --loss cross_entropy",
      model.label_smoothing, loss);
}

void check(const RunConfig& config) {
  check_texts(config);
  check_fields(config);
  check_model_file(config.model);
  check_loss(config.model);
  check_patterns(config);
  check_ignore_index(config);
  check_normalization(config.data, config.model.loss);
  check_run_directory(config);
  check_watched_evaluations(config);
  check_strategy(config);
  check_schedule(config.schedule);
  check_divided_batch(config);
  check_device(config);
  check_ranks(config);
}

}  // namespace tandem
