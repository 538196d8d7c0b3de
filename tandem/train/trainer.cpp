#include "tandem/train/trainer.h"

#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/signals.h"
#include "tandem/train/assembly.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/progress.h"

namespace tandem {

namespace {

constexpr int64_t kDryRunSteps = 2;
constexpr int64_t kTracedSteps = 20;

// Where this rank writes, "" for nowhere. Checkpoints are kept by their step: a new
// run's would be the first to go, so it does not mix with an old one's.
std::string own_directory(const RunConfig& config, const Communicator& comm) {
  if (comm.rank() != 0 || config.out.empty()) {
    return "";
  }
  if (config.resume.empty() &&
      !newest_checkpoint(config.out + "/checkpoints").empty()) {
    throw ConfigError(
        "[train] '" + config.out +
        "' holds the checkpoints of an earlier run; go on with --resume auto, or "
        "choose "
        "another --out");
  }
  return config.out;
}

class Trainer {
 public:
  Trainer(
      const RunConfig& config, const DatasetSplits& data, Communicator& comm,
      std::unique_ptr<Model> model)
      : config_(config),
        data_(data),
        comm_(comm),
        parts_(assemble(config, data.train, comm, std::move(model))),
        loader_(data.train, sampler_options(), training_loader_options()),
        steps_per_epoch_(count_steps()),
        schedule_(make_lr_schedule(
            schedule_options(config), parts_.optimizer->base_lr(), config.epochs,
            steps_per_epoch_)),
        directory_(own_directory(config, comm), config, !config.resume.empty()),
        progress_(config.epochs, comm.rank() == 0) {}

  Summary run() {
    resume();
    parts_.strategy->start();
    announce();
    reset_clock();
    TestReport test;
    if (position_.epoch >= config_.epochs) {
      test = evaluate_now();
    }
    while (position_.epoch < config_.epochs) {
      train_epoch();
      test = evaluate_now();
      position_ = {position_.epoch + 1, 0, position_.step};
      save();
    }
    write_trace();
    return conclude(test);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // --- set-up ---

  SamplerOptions sampler_options() const {
    const DataShard shard = parts_.strategy->data_shard();
    SamplerOptions options;
    options.size = data_.train.size;
    options.num_shards = shard.num_shards;
    options.shard = shard.shard;
    options.seed = static_cast<uint64_t>(config_.seed);
    return options;
  }

  LoaderOptions training_loader_options() const {
    LoaderOptions options = loader_options(config_);
    options.num_buffers = config_.accumulate + 1;
    return options;
  }

  int64_t count_steps() const {
    const int64_t steps =
        (loader_.num_batches() + config_.accumulate - 1) / config_.accumulate;
    return config_.dry_run ? std::min(steps, kDryRunSteps) : steps;
  }

  CheckpointContent content_of(TrainingState state) const {
    CheckpointContent content;
    content.state = std::move(state);
    content.position = position_;
    content.description = describe_model(config_, data_.train);
    content.config = to_toml(config_);
    return content;
  }

  void resume() {
    if (config_.resume.empty()) {
      return;
    }
    std::string path = config_.resume;
    if (path == "auto") {
      path = newest_checkpoint(config_.out + "/checkpoints");
      if (path.empty()) {
        log_info("nothing to resume in '" + config_.out + "'; starting anew");
        return;
      }
    }
    auto loaded = content_of(local_state(*parts_.arenas, *parts_.optimizer));
    load_checkpoint(path, loaded);
    position_ = loaded.position;
    if (position_.step_in_epoch >= steps_per_epoch_) {
      position_ = {position_.epoch + 1, 0, position_.step};
    }
    log_info(fmt::format("resuming from {} at step {}", path, position_.step));
  }

  void announce() {
    progress_.say(fmt::format(
        "{} ({} parameters) on {}: {} samples, {} x batch {}{}, {}, {} ranks over {}",
        config_.model, count_parameters(), data_.train.name, data_.train.size,
        parts_.strategy->data_shard().num_shards, config_.batch_size,
        config_.accumulate > 1 ? fmt::format(" x {}", config_.accumulate) : "",
        config_.strategy, comm_.size(), comm_.backend()));
  }

  int64_t count_parameters() const {
    int64_t count = 0;
    for (const auto& tensor : parts_.arenas->tensors()) {
      count += tensor.numel();
    }
    return count;
  }

  // --- training ---

  void train_epoch() {
    loader_.seek(position_.epoch, position_.step_in_epoch * config_.accumulate);
    while (position_.step_in_epoch < steps_per_epoch_) {
      train_step();
      const bool report_due = position_.step_in_epoch % config_.log_every == 0 ||
                              position_.step_in_epoch == steps_per_epoch_;
      if (report_due) {
        report();
      }
      if (config_.checkpoint_every > 0 &&
          position_.step % config_.checkpoint_every == 0) {
        save();
      }
    }
  }

  void train_step() {
    std::vector<Batch> batches;
    Batch batch;
    while (static_cast<int64_t>(batches.size()) < config_.accumulate &&
           loader_.next(batch)) {
      batches.push_back(batch);
    }
    StepContext context;
    context.step = position_.step;
    context.epoch = position_.epoch;
    context.seed = static_cast<uint64_t>(config_.seed);
    context.lr = schedule_->lr(position_.epoch, position_.step);
    context.trace = config_.trace && position_.step < kTracedSteps ? &trace_ : nullptr;
    sums_ += parts_.strategy->train_step(batches, context);
    ++position_.step_in_epoch;
    ++position_.step;
  }

  // Adds up what all ranks saw since the last report, and agrees on what signals
  // asked for: one small reduction serves both.
  void report() {
    auto totals = at::zeros({5}, at::kDouble);
    totals.narrow(0, 0, 3).copy_(sums_);
    totals[3].fill_(stop_signal() != 0 ? 1.0 : 0.0);
    totals[4].fill_(take_save_request() ? 1.0 : 0.0);
    sums_.zero_();
    comm_.all_reduce(totals, ReduceOp::sum, "report")->wait();
    const double* values = totals.data_ptr<double>();
    const double samples = std::max(1.0, values[2]);
    add_to_clock(values[2]);
    TrainReport report;
    report.epoch = position_.epoch;
    report.step_in_epoch = position_.step_in_epoch;
    report.steps_per_epoch = steps_per_epoch_;
    report.step = position_.step;
    report.loss = values[0] / samples;
    report.train_accuracy = 100 * values[1] / samples;
    report.lr = schedule_->lr(position_.epoch, position_.step - 1);
    report.samples_per_second = recent_rate_;
    report.train_seconds = train_seconds_;
    check_finite(report);
    directory_.add(report);
    progress_.show(report);
    if (values[4] > 0 || values[3] > 0) {
      save();
    }
    if (values[3] > 0) {
      stop();
    }
  }

  void check_finite(const TrainReport& report) const {
    if (!std::isfinite(report.loss)) {
      throw Error(fmt::format(
          "[train] the loss is {} at step {}; lower --lr, or set --clip-norm",
          report.loss, report.step));
    }
  }

  [[noreturn]] void stop() const {
    throw Error(fmt::format(
        "[train] stopped by a signal at step {}; {}", position_.step,
        config_.out.empty() ? "set --out to save checkpoints"
                            : "go on with --resume auto"));
  }

  // --- evaluation, checkpoints, end ---

  TestReport evaluate_now() {
    pause_clock();
    LoaderOptions options = loader_options(config_);
    options.batch_size = config_.eval_batch_size;
    auto report = evaluate(
        *parts_.strategy, comm_, data_.test, options,
        config_.dry_run ? kDryRunSteps : 0);
    report.epoch = position_.epoch;
    report.step = position_.step;
    directory_.add(report);
    progress_.show(report);
    reset_clock();
    return report;
  }

  void save() {
    if (config_.out.empty() || config_.dry_run) {
      return;
    }
    pause_clock();
    const auto content = content_of(parts_.strategy->collect_state());
    if (comm_.rank() == 0) {
      save_checkpoint(directory_.checkpoints(), content, config_.keep_checkpoints);
    }
    reset_clock();
  }

  void write_trace() {
    if (config_.trace && !config_.out.empty() && comm_.rank() == 0) {
      replace_file(config_.out + "/trace.json", trace_.to_json(comm_.rank()));
    }
  }

  Summary conclude(const TestReport& test) {
    Summary summary;
    summary.test = test;
    summary.train_seconds = train_seconds_;
    summary.samples_per_second =
        train_seconds_ > 0 ? total_samples_ / train_seconds_ : 0;
    const auto steps = static_cast<double>(std::max<int64_t>(1, position_.step));
    summary.exposed_comm_ms_per_step = 1000 * comm_.stats().waited_seconds / steps;
    summary.epochs = position_.epoch;
    summary.steps = position_.step;
    summary.world_size = comm_.size();
    summary.backend = comm_.backend();
    summary.executor = parts_.executor->name();
    summary.parameters_sha256 = parts_.arenas->parameters_sha256();
    directory_.finish(summary, config_);
    progress_.say(fmt::format(
        "Finished training in {:.1f} s, {:.0f} samples/s", summary.train_seconds,
        summary.samples_per_second));
    return summary;
  }

  // --- the clock: training only, without evaluation and saving ---

  void reset_clock() {
    started_ = Clock::now();
  }

  void pause_clock() {
    train_seconds_ += std::chrono::duration<double>(Clock::now() - started_).count();
    started_ = Clock::now();
  }

  void add_to_clock(double samples) {
    const double before = train_seconds_;
    pause_clock();
    total_samples_ += samples;
    recent_rate_ = samples / std::max(1e-9, train_seconds_ - before);
  }

  const RunConfig& config_;
  const DatasetSplits& data_;
  Communicator& comm_;
  Assembly parts_;
  Loader loader_;
  int64_t steps_per_epoch_;
  std::unique_ptr<LrSchedule> schedule_;
  RunDirectory directory_;
  Progress progress_;
  Position position_;
  // Since the last report, this rank: loss, right answers, samples.
  at::Tensor sums_ = at::zeros({3}, at::kDouble);
  Trace trace_;
  Clock::time_point started_;
  double train_seconds_ = 0;
  double total_samples_ = 0;
  double recent_rate_ = 0;
};

}  // namespace

Summary train(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    std::unique_ptr<Model> model) {
  return Trainer(config, data, comm, std::move(model)).run();
}

}  // namespace tandem
