#include "tandem/train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/standard_streams.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/data/data_parts.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/train/agreement/agreement.h"
#include "tandem/train/agreement/convergence.h"
#include "tandem/train/agreement/precision.h"
#include "tandem/train/agreement/start_checks.h"
#include "tandem/train/assembly.h"
#include "tandem/train/drift_check.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/messages.h"
#include "tandem/train/reading.h"
#include "tandem/train/report/partition_audit.h"
#include "tandem/train/report/peak_memory.h"
#include "tandem/train/report/reporter.h"
#include "tandem/train/report/trace_file.h"
#include "tandem/train/saving.h"
#include "tandem/train/totals.h"

namespace tandem {

namespace {

constexpr int64_t kDryRunSteps = 2;
constexpr int64_t kTracedSteps = 20;

class Trainer {
 public:
  Trainer(
      RunConfig config, const DatasetSplits& data, const DataParts& data_parts,
      Communicator& comm, std::unique_ptr<Model> model)
      : config_(std::move(config)),
        data_(data),
        comm_(comm),
        parts_(assemble(config_, data.train, comm, std::move(model))),
        saving_(config_, data.train, data_parts, comm, parts_),
        loader_(
            data.train, sampler_options(), training_loader_options(config_, parts_)),
        steps_per_epoch_(loader_.num_steps()),
        schedule_(make_lr_schedule(
            config_.schedule, parts_.optimizer->base_lr(), config_.training.epochs,
            dry(steps_per_epoch_))),
        agreement_(comm, config_.output.checkpoint_minutes),
        audit_(comm, sampler_options()),
        reporter_(config_, comm, *parts_.strategy),
        convergence_(
            comm, config_.training.min_delta,
            parts_.strategy->data_shard().shard >= 0) {}

  Summary run() {
    check_shares(config_, data_.train, parts_.strategy->data_shard(), comm_);
    check_steps();
    const std::string out = saving_.directory();
    const bool resumed = saving_.resume(position_);
    if (resumed) {
      check_steps();
    }
    parts_.strategy->start();
    saving_.resume_own(own_state());
    check_replicas();
    open_directory(out, resumed);
    agreement_.begin(position_.step);
    first_step_ = position_.step;
    announce();
    TestReport test;
    if (is_finished()) {
      test = evaluate_now();
    }
    while (!is_finished()) {
      train_epoch();
      if (is_evaluated()) {
        test = evaluate_now();
      }
      position_ = {position_.epoch + 1, 0, position_.step, 0};
      save();
    }
    write_trace();
    return conclude(test);
  }

 private:
  bool is_finished() const {
    return position_.epoch >= config_.training.epochs || convergence_.all();
  }

  // The epoch that has just ended.
  bool is_evaluated() const {
    const int64_t epochs = position_.epoch + 1;
    return epochs >= config_.training.epochs || convergence_.all() ||
           epochs % config_.output.eval_every == 0;
  }

  // --- set-up ---

  SamplerOptions sampler_options() const {
    return tandem::sampler_options(config_, data_.train, parts_.strategy->data_shard());
  }

  int64_t dry(int64_t steps) const {
    return config_.output.dry_run ? std::min(steps, kDryRunSteps) : steps;
  }

  int64_t samples_per_step() const {
    return tandem::samples_per_step(config_, parts_.strategy->data_shard());
  }

  // From where the run is to the end of the epoch.
  void check_steps() {
    SamplerOptions rest = sampler_options();
    rest.first_position = position_.samples_in_epoch;
    loader_.seek(position_.epoch, position_.samples_in_epoch);
    check_same_steps(shard_size(rest), loader_.num_steps(), config_.data.uneven, comm_);
    if (position_.step == 0 && loader_.num_steps() == 0) {
      throw ConfigError(fmt::format(
          "[data] {} samples on {} ranks leave no step to make; use fewer ranks, or "
          "--uneven pad or join",
          rest.size, rest.num_shards));
    }
  }

  // What only looks, or has nothing left to do, changes nothing of an earlier run.
  void open_directory(const std::string& out, bool resumed) {
    const bool finished =
        is_finished() && !out.empty() && file_exists(out + "/summary.json");
    const bool looks_on = resumed && (config_.output.dry_run || finished);
    directory_ = std::make_unique<RunDirectory>(looks_on ? "" : out, config_, resumed);
    reporter_.write_to(*directory_);
    if (resumed && !looks_on && !out.empty()) {
      directory_->forget_after(position_.step);
      leave_later_checkpoints(directory_->checkpoints(), position_.step);
    }
  }

  // What only this rank has.
  std::vector<NamedTensor> own_state() {
    auto state = parts_.strategy->rank_state();
    if (convergence_.wanted() || !state.empty()) {
      const auto ending = convergence_.state();
      state.insert(state.end(), ending.begin(), ending.end());
      state.push_back({"epoch_sums", reporter_.epoch_sums()});
    }
    return state;
  }

  void announce() {
    reporter_.say(describe_run(config_, data_.train, parts_, comm_));
    if (!parts_.executor_passed_over.empty()) {
      reporter_.say(fmt::format(
          "executor {}: {}", name_of(parts_.executor->kind()),
          parts_.executor_passed_over));
    }
    const bool reads = parts_.strategy->data_shard().shard >= 0;
    reporter_.start(reads ? shard_size(sampler_options()) : 0, data_.train.size);
  }

  // --- training ---

  void train_epoch() {
    // What PyTorch's set_epoch() is told, or 0 where nobody calls it.
    const int64_t order = config_.data.reshuffle ? position_.epoch : 0;
    loader_.seek(order, position_.samples_in_epoch);
    audit_.begin(position_.epoch, order, position_.samples_in_epoch);
    // Steps of a resumed epoch's first part may have been of another size.
    last_step_ = dry(position_.step_in_epoch + loader_.num_steps());
    while (position_.step_in_epoch < last_step_) {
      train_step();
      after_step();
    }
    // A rank that converged reads nothing any more.
    if (!config_.output.dry_run && !convergence_.some()) {
      audit_.finish();
    }
    end_epoch();
    check_replicas();
  }

  void end_epoch() {
    const double loss = reporter_.end_epoch(place());
    if (convergence_.note(loss)) {
      reporter_.converged(place());
    }
    parts_.strategy->end_epoch(
        convergence_.all() || position_.epoch + 1 == config_.training.epochs);
  }

  ReportPlace place() const {
    return {
        position_.epoch,
        position_.step_in_epoch,
        last_step_,
        position_.step,
        position_.samples_in_epoch,
        data_.train.size,
        lr_};
  }

  // The schedule's step counts as if the whole run had this world size.
  double current_lr() const {
    const int64_t step = position_.samples_in_epoch / samples_per_step();
    return schedule_->lr(
        position_.epoch, position_.epoch * dry(steps_per_epoch_) + step);
  }

  void train_step() {
    const auto batches = next_batches();
    StepContext context;
    context.step = position_.step;
    context.epoch = position_.epoch;
    context.seed = static_cast<uint64_t>(config_.training.seed);
    context.lr = current_lr();
    context.trace =
        config_.output.trace && position_.step < kTracedSteps ? &trace_ : nullptr;
    lr_ = context.lr;
    const ReportPlace before = place();
    const auto sums = parts_.strategy->train_step(batches, context);
    ++position_.step_in_epoch;
    ++position_.step;
    position_.samples_in_epoch = std::min(
        position_.samples_in_epoch + samples_per_step(), loader_.end_position());
    // A server's sums are its workers', who say themselves what is wrong with them.
    if (parts_.strategy->data_shard().shard >= 0) {
      agreement_.note_loss(position_.step, sums[0].item<double>());
    }
    reporter_.add_step(sums, before);
  }

  std::vector<Batch> next_batches() {
    std::vector<Batch> batches;
    const DataShard shard = parts_.strategy->data_shard();
    if (shard.shard < 0 || convergence_.mine()) {
      return batches;
    }
    Batch batch;
    while (static_cast<int64_t>(batches.size()) < config_.training.accumulate &&
           loader_.next(batch)) {
      if (shard.counted) {
        audit_.add(batch.samples);
      }
      batches.push_back(batch);
    }
    return batches;
  }

  bool is_line_due(bool last) const {
    const bool first_of_them = config_.output.log_at == LogAt::first;
    const int64_t step = position_.step_in_epoch - (first_of_them ? 1 : 0);
    return step % config_.output.log_every == 0 ||
           (last && config_.output.log_at == LogAt::last_and_end);
  }

  void after_step() {
    const bool last = position_.step_in_epoch == last_step_;
    const bool line_due = is_line_due(last);
    // Sums do not reach into the next epoch.
    const bool report_due = last || line_due;
    // The end of an epoch saves by itself, after the evaluation.
    const bool save_due = !last && config_.output.checkpoint_every > 0 &&
                          position_.step % config_.output.checkpoint_every == 0;
    // To agree is to wait for each other.
    const bool agreement_due = reporter_.in_lockstep()
                                   ? report_due || agreement_.is_due(position_.step)
                                   : last;
    const bool agree = save_due || agreement_due;
    const Decision decision = agree ? agreement_.decide(position_.step) : Decision{};
    if (decision.bad_rank >= 0) {
      throw stopped_for_loss(decision, last_checkpoint());
    }
    if (report_due) {
      reporter_.report(place(), line_due);
      memory_.look();
    }
    if (save_due || decision.save || decision.stopping_rank >= 0) {
      check_replicas();
      save();
    }
    if (decision.stopping_rank >= 0) {
      // A rank that ends sooner would have the others stopped while rank 0 writes.
      comm_.barrier("stop");
      throw stopped_by_signal(decision, position_.step, config_.output);
    }
  }

  std::string last_checkpoint() const {
    return config_.output.out.empty()
               ? ""
               : newest_checkpoint(config_.output.out + "/checkpoints");
  }

  // --- evaluation, checkpoints, end ---

  void check_replicas() {
    if (reporter_.in_lockstep()) {
      check_drift(parts_, comm_, config_.strategy.drift_check, position_.step);
    }
  }

  TestReport evaluate_now() {
    reporter_.clock().pause();
    LoaderOptions options = loader_options(config_);
    options.batch_size = config_.output.eval_batch_size;
    auto report = evaluate(
        *parts_.strategy, comm_, data_.test, options,
        config_.output.dry_run ? kDryRunSteps : 0);
    // Behind the last epoch it is still the last one's model.
    report.epoch = std::clamp<int64_t>(
        position_.epoch, 0, std::max<int64_t>(1, config_.training.epochs) - 1);
    report.step = position_.step;
    report.samples = position_.epoch * data_.train.size +
                     std::min(position_.samples_in_epoch, data_.train.size);
    reporter_.show(report);
    reporter_.clock().resume();
    return report;
  }

  void save() {
    if (config_.output.out.empty() || config_.output.dry_run) {
      return;
    }
    reporter_.clock().pause();
    // First: it may set this rank's own values aside.
    auto state = parts_.strategy->collect_state();
    saving_.save(directory_->checkpoints(), position_, std::move(state), own_state());
    agreement_.saved();
    reporter_.clock().resume();
  }

  void write_trace() {
    if (!config_.output.trace || config_.output.out.empty()) {
      return;
    }
    const std::string trace = trace_of_all_ranks(trace_, comm_);
    if (comm_.rank() == 0) {
      replace_file(config_.output.out + "/trace.json", trace);
    }
  }

  Summary conclude(const TestReport& test) {
    Summary summary;
    summary.test = test;
    summary.train_seconds = reporter_.clock().seconds();
    summary.samples_per_second = reporter_.clock().mean_rate();
    const auto steps =
        static_cast<double>(std::max<int64_t>(1, position_.step - first_step_));
    summary.train_accuracy = reporter_.epoch_accuracy();
    summary.exposed_comm_ms_per_step =
        1000 * traffic(parts_, comm_).waited_seconds / steps;
    add_totals(summary, config_, parts_, comm_);
    // Thread ranks are one process.
    const bool own_process =
        config_.ranks.kind == RankKind::process || comm_.rank() == 0;
    summary.peak_memory_mib = total_memory(own_process ? memory_.mib() : 0, comm_);
    if (const auto* scaler = parts_.optimizer->scaler()) {
      summary.skipped_steps = scaler->skipped_steps();
      summary.loss_scale = scaler->scale();
      reporter_.say(fmt::format(
          "{} of {} steps were left out because gradients overflowed; the loss scale "
          "is now {}",
          summary.skipped_steps, position_.step, summary.loss_scale));
    }
    summary.epochs = position_.epoch;
    summary.steps = position_.step;
    directory_->finish(summary, config_);
    reporter_.end();
    return summary;
  }

  const RunConfig config_;
  const DatasetSplits& data_;
  Communicator& comm_;
  Assembly parts_;
  Saving saving_;
  Loader loader_;
  // Of a whole epoch at this world size.
  int64_t steps_per_epoch_;
  // Steps that earlier processes of this run made.
  int64_t first_step_ = 0;
  // step_in_epoch at the end of this epoch.
  int64_t last_step_ = 0;
  std::unique_ptr<LrSchedule> schedule_;
  Agreement agreement_;
  PartitionAudit audit_;
  // Made when nothing can go wrong any more before the first step.
  std::unique_ptr<RunDirectory> directory_;
  Reporter reporter_;
  PeakMemory memory_;
  Position position_;
  double lr_ = 0;
  Convergence convergence_;
  Trace trace_;
};

}  // namespace

Summary train(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    std::unique_ptr<Model> model) {
  hold_standard_streams();
  check(config);
  // Before the parts are made: some talk to those of the other ranks.
  const DataParts data_parts = parts_of(data);
  check_same_run(config, data_parts, comm);
  RunConfig settled = config;
  settled.exec.precision = settle_precision(config, comm);
  return Trainer(std::move(settled), data, data_parts, comm, std::move(model)).run();
}

}  // namespace tandem
