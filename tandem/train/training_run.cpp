#include "tandem/train/training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/signals.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/comm/exchange.h"
#include "tandem/launch/status/rank_status.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/update/arena_update.h"
#include "tandem/train/agreement/agreement.h"
#include "tandem/train/agreement/run_end.h"
#include "tandem/train/agreement/stop_exchange.h"
#include "tandem/train/assembly.h"
#include "tandem/train/device_limits.h"
#include "tandem/train/drift_check.h"
#include "tandem/train/finite_check.h"
#include "tandem/train/messages.h"
#include "tandem/train/report/measures.h"
#include "tandem/train/report/reporter.h"
#include "tandem/train/report/trace_file.h"
#include "tandem/train/run_checkpoints.h"
#include "tandem/train/run_evaluation.h"
#include "tandem/train/totals.h"
#include "tandem/train/training_batches.h"

namespace tandem {

namespace {

constexpr int64_t kDryRunSteps = 2;

class TrainingRun {
 public:
  TrainingRun(
      RunConfig config, const DatasetSplits& data, const DataParts& data_parts,
      Communicator& comm, CustomParts own)
      : config_(std::move(config)),
        data_(data),
        comm_(comm),
        trace_(
            comm, config_.output.trace && !config_.output.out.empty()
                      ? config_.output.out + "/trace"
                      : ""),
        parts_(within_device_memory(
            own.placement, "choose a smaller --model, or --device cpu",
            [&] {
              return assemble(
                  config_, data.train, comm, std::move(own.model), std::move(own.loss),
                  own.placement);
            })),
        checkpoints_(config_, data.train, data_parts, comm, parts_, own.observer),
        batches_(config_, data.train, parts_, comm, own.placement),
        schedule_(make_lr_schedule(
            config_.schedule, parts_.optimizer->base_lr(), config_.training.epochs,
            dry(batches_.steps_per_epoch()))),
        agreement_(comm, config_.output.checkpoint_minutes),
        reporter_(
            config_, comm, *parts_.strategy, parts_.arenas->device(),
            parts_.loss.metric(), data.train),
        end_(comm, config_.training, batches_.reads(), own.observer),
        placement_(std::move(own.placement)),
        evaluation_(config_, data, parts_, comm, placement_),
        finite_check_(*parts_.arenas, comm) {
    reporter_.report_to(own.listener);
  }

  Summary run() {
    start();
    TestReport test;
    if (is_finished()) {
      reporter_.say(nothing_to_train(position_, config_.training, end_.reason()));
      test = evaluate_now(data_.test);
      if (saved_step_ < 0) {
        save();
      }
    }
    while (!is_finished()) {
      train_epoch();
      if (is_evaluated()) {
        test = evaluate_in_run();
      }
      if (is_epoch_done()) {
        position_ = {position_.epoch + 1, 0, position_.step, 0};
      }
      save();
      // Ranks in lockstep need not agree here, because they agree during the next
      // steps.
      if (!parts_.strategy->in_lockstep() && !is_finished()) {
        stop_if_told(agreement_.decide(position_.step));
      }
    }
    checkpoints_.finish();
    if (test.part == DataPart::validation) {
      test = evaluate_now(data_.test);
    }
    if (position_.step > first_step_) {
      checkpoints_.check_folder();
      trace_.write();
    }
    auto summary = make_summary(test);
    // The program keeps its model.
    if (config_.model.kind == ModelKind::custom) {
      parts_.strategy->complete_parameters();
    }
    return summary;
  }

 private:
  bool is_finished() const {
    return position_.epoch >= num_epochs_ || end_.now();
  }

  // Returns whether to evaluate the model after the epoch that has just ended or was
  // interrupted.
  bool is_evaluated() const {
    return is_last_epoch() || (position_.epoch + 1) % config_.output.eval_every == 0;
  }
  bool is_last_epoch() const {
    return position_.epoch + 1 >= num_epochs_ || end_.now();
  }
  bool is_epoch_done() const {
    return position_.step_in_epoch >= last_step_;
  }

  // --- set-up ---

  // Resumes the run if requested, and does everything that precedes the first step.
  void start() {
    check_shares(config_, data_.train, parts_.strategy->data_shard(), comm_);
    batches_.check(position_);
    const std::string out = checkpoints_.directory();
    RunProgress progress;
    const bool resumed = checkpoints_.resume(progress);
    position_ = progress.position;
    end_.patience().continue_from(progress.best);
    schedule_->continue_from(progress.plateau);
    if (resumed) {
      batches_.check(position_);
    }
    num_epochs_ = config_.output.dry_run
                      ? std::min(config_.training.epochs, position_.epoch + 1)
                      : config_.training.epochs;
    parts_.strategy->start();
    const auto own = own_state();
    checkpoints_.resume_own(own);
    parts_.strategy->rank_state_loaded();
    check_replicas();
    open_directory(out, resumed);
    if (resumed) {
      reporter_.resumed(position_, progress.time, !own.empty());
    }
    if (parts_.strategy->steps_alone()) {
      stop_exchange_.emplace(comm_, [] { return stop_signal() != 0; });
    }
    agreement_.begin(position_.step);
    first_step_ = position_.step;
    saved_step_ = resumed ? position_.step : -1;
    announce();
    if (saves() && !(resumed && is_finished())) {
      checkpoints_.prepare();
    }
  }

  int64_t dry(int64_t steps) const {
    return config_.output.dry_run ? std::min(steps, kDryRunSteps) : steps;
  }

  // Opens the run directory. If a run that continues an earlier run is a dry run or has
  // no steps left, it changes no file of the earlier run.
  void open_directory(const std::string& out, bool resumed) {
    const bool finished =
        is_finished() && !out.empty() && file_exists(out + "/summary.json");
    const bool continues = resumed || !config_of_earlier_run(config_).empty();
    const bool looks_on =
        (config_.output.dry_run && continues) || (resumed && finished);
    if (!looks_on) {
      checkpoints_.make_directory();
    }
    directory_ = std::make_unique<RunDirectory>(
        looks_on ? "" : out, config_,
        resumed ? std::optional(position_.step) : std::nullopt,
        checkpoints_.lock_of_directory());
    reporter_.write_to(*directory_);
    if (resumed && !looks_on && !out.empty()) {
      leave_later_checkpoints(directory_->checkpoints(), position_.step);
    }
  }

  // State that only this rank has.
  std::vector<NamedTensor> own_state() {
    auto state = parts_.strategy->rank_state();
    if (end_.convergence().wanted() || !state.empty()) {
      const auto ending = end_.convergence().state();
      state.insert(state.end(), ending.begin(), ending.end());
      state.push_back({"epoch_sums", reporter_.epoch_sums()});
    }
    return state;
  }

  void announce() {
    // A program that passes its own model keeps the trained model.
    if (config_.output.out.empty() && !config_.output.dry_run &&
        config_.model.kind != ModelKind::custom) {
      log_info(
          "[train] this run saves nothing; set --out DIR to save the trained network");
    }
    for (const auto& line : describe_start(
             config_, data_.train, parts_, batches_.why_not_on_device(), comm_)) {
      reporter_.say(line);
    }
    reporter_.start(batches_.samples());
  }

  // --- training ---

  void train_epoch() {
    batches_.begin(position_);
    // The steps before a resume may have had another number of samples.
    last_step_ = position_.step_in_epoch + dry(batches_.num_steps());
    const int64_t before = position_.step;
    while (!is_epoch_done() && !end_.now()) {
      Trace* const trace = step_trace();
      // The name by which programs such as HTA recognize a step.
      const TraceSection step(
          trace, "user_annotation", "ProfilerStep#", std::to_string(position_.step));
      train_step();
      const TraceSpan span(trace, "report", "after step");
      after_step();
    }
    // A rank that has converged reads no samples.
    if (!config_.output.dry_run && !end_.convergence().some() && is_epoch_done()) {
      batches_.finish_epoch();
    }
    const bool trained = position_.step > before;
    if (trained && is_evaluated()) {
      finite_check_.check_model(position_.step);
      // Saves before the evaluation, which may be long. A run that resumes from this
      // checkpoint then only has to end the epoch.
      check_replicas();
      save(false);
    }
    end_epoch(trained);
    check_replicas();
  }

  // `trained`: this process made steps of the epoch.
  void end_epoch(bool trained) {
    const EpochLoss loss = reporter_.end_epoch(place(), is_epoch_done());
    if (is_epoch_done() && end_.convergence().note(loss.compared)) {
      reporter_.converged(place());
    }
    end_.on_epoch(
        {position_.epoch, position_.step, loss.mean, &parts_.loss.metric(),
         reporter_.epoch_metric()},
        trained);
    parts_.strategy->end_epoch(is_last_epoch());
  }

  ReportPlace place() const {
    return {position_, last_step_, lr_};
  }

  // Returns the learning rate of the next step. The schedule counts steps as if the
  // whole run had this world size.
  double current_lr() const {
    const int64_t step = position_.samples_in_epoch / batches_.samples_per_step();
    return schedule_->lr(
        position_.epoch, position_.epoch * dry(batches_.steps_per_epoch()) + step);
  }

  // Returns the trace for the next step; null after the first steps of this process.
  Trace* step_trace() {
    return trace_.of_step(position_.step - first_step_);
  }

  std::vector<Batch> next_batches() {
    const TraceSpan span(step_trace(), "data", "load batch");
    report_activity(Activity::data);
    // A rank that has converged reads no samples.
    return end_.convergence().mine() ? std::vector<Batch>() : batches_.next();
  }

  void train_step() {
    const auto batches = next_batches();
    StepContext context;
    context.step = position_.step;
    context.epoch = position_.epoch;
    context.seed = static_cast<uint64_t>(config_.training.seed);
    context.lr = lr_ = current_lr();
    context.trace = step_trace();
    const int64_t samples_before = position_.samples_in_epoch;
    report_activity(Activity::training);
    const double waited_before = traffic(parts_, comm_).waited_seconds;
    const auto sums = parts_.strategy->train_step(batches, context);
    const double waited = traffic(parts_, comm_).waited_seconds - waited_before;
    const TraceSpan span(context.trace, "report", "note results");
    ++position_.step_in_epoch;
    ++position_.step;
    position_.samples_in_epoch = batches_.after_step(position_.samples_in_epoch);
    report_step(position_.epoch, position_.step);
    // A server has the sums of its workers, which report their losses themselves.
    if (batches_.reads()) {
      agreement_.note_loss(position_.step, sums);
    }
    reporter_.add_step(
        sums, samples_before, waited, batches.empty() || count_samples(batches) > 0);
    checkpoints_.poll();
    end_.on_step({position_.epoch, position_.step_in_epoch, position_.step, lr_, sums});
  }

  void after_step() {
    const bool last = is_epoch_done();
    const bool line_due = is_line_due(config_.output, position_.step_in_epoch, last);
    // At the end of an epoch, run() saves after the evaluation.
    const bool save_due = !last && config_.output.checkpoint_every > 0 &&
                          position_.step % config_.output.checkpoint_every == 0;
    const bool stopped_alone = stop_ranks_that_step_alone(last || save_due);
    // To agree, ranks wait for each other. They therefore agree in steps in which they
    // wait anyway, and otherwise about twice a second.
    const bool ranks_wait = last || save_due || stopped_alone ||
                            (line_due && parts_.strategy->in_lockstep());
    const bool agreement_due =
        parts_.strategy->ranks_have_met() && agreement_.is_due(position_.step);
    const Decision decision = ranks_wait || agreement_due ? agree() : Decision();
    // Also reports in the last step of an epoch, because the sums begin again in the
    // next epoch.
    if ((last || line_due || decision.end) && !stopped_alone) {
      reporter_.report(place(), line_due);
    }
    if (save_due || decision.save || decision.stopping_rank >= 0) {
      check_replicas();
      save();
    }
    stop_if_told(decision);
  }

  // Makes a decision with the other ranks and applies it, except for saving and
  // stopping. Collective. Throws if a rank's loss is not finite.
  Decision agree() {
    const Decision decision = agreement_.decide(
        position_.step, end_.stop_requested(), checkpoints_.share_written());
    if (decision.bad_rank >= 0) {
      throw stopped_for_loss(decision, checkpoints_.newest());
    }
    if (GradScaler* scaler = parts_.optimizer->scaler()) {
      scaler->check_skipped_steps(position_.step);
    }
    if (decision.end) {
      end_.stop();
    }
    if (decision.shares_written) {
      checkpoints_.complete_shares();
    }
    return decision;
  }

  // Returns true if ranks that step alone (Strategy::steps_alone()) have to stop; all
  // ranks then have the same position. If `meeting` is true, all ranks make this call
  // at the same position, and wait for each other.
  bool stop_ranks_that_step_alone(bool meeting) {
    if (!stop_exchange_ ||
        (meeting ? stop_exchange_->meet() : !stop_exchange_->stops())) {
      return false;
    }
    come_together();
    return true;
  }

  // Gives ranks at different steps the same position. If each rank has its own
  // parameters, all ranks train up to the step of the furthest rank, so that a resumed
  // run computes the same bits. If ranks share parameters, all ranks get rank 0's
  // position.
  void come_together() {
    const auto start = std::chrono::steady_clock::now();
    parts_.strategy->leave_steps();
    const bool shared = parts_.strategy->consistency() == Consistency::asynchronous;
    const Position target = common_position(position_, shared, comm_);
    const std::chrono::duration<double> half_grace(config_.ranks.grace_seconds / 2);
    while (!shared && position_.step < target.step &&
           std::chrono::steady_clock::now() - start < half_grace) {
      train_step();
    }
    if (!shared && position_.step < target.step) {
      log_warning(
          "[train] this rank skips " + counted(target.step - position_.step, "step") +
          ", so that the run is saved within --grace-seconds");
    }
    position_ = target;
  }

  // Stops the run if `decision` has a stopping rank. Call it after the run is saved.
  void stop_if_told(const Decision& decision) {
    if (decision.stopping_rank >= 0) {
      checkpoints_.finish();
      // Waits for rank 0, because the launcher would stop rank 0 while it writes if
      // another rank ended earlier.
      comm_.barrier("stop");
      throw_stopped_by_signal(
          decision, position_.step, config_.output, checkpoints_.newest());
    }
  }

  // --- evaluation, checkpoints, end ---

  void check_replicas() {
    if (parts_.strategy->in_lockstep()) {
      check_drift(parts_, comm_, config_.strategy.drift_check, position_.step);
    }
  }

  // Evaluates the model. If the result ends the run, no step follows, so the strategy
  // ends the epoch again.
  TestReport evaluate_in_run() {
    const bool was_last = is_last_epoch();
    const auto report = evaluate_now(evaluation_.watched());
    end_.patience().note(report);
    schedule_->note_evaluation(report.loss);
    end_.on_evaluation(report);
    if (is_last_epoch() && !was_last) {
      parts_.strategy->end_epoch(true);
    }
    return report;
  }

  TestReport evaluate_now(const Dataset& data) {
    const TraceSpan span(trace_.get(), "evaluation", "evaluation");
    reporter_.clock().pause();
    report_activity(Activity::evaluation);
    const auto report =
        evaluation_.evaluate(data, position_, [this] { return stops_evaluation(); });
    if (!report) {
      if (saved_step_ != position_.step) {
        save();
      }
      stop_if_told(agreement_.decide(position_.step));
    }
    if (!std::isfinite(report->loss)) {
      throw stopped_for_evaluation(*report, checkpoints_.newest_before(position_.step));
    }
    reporter_.show(report.value());
    reporter_.clock().resume();
    return *report;
  }

  // Returns whether a signal stops a rank. Completes a checkpoint meanwhile, because an
  // evaluation may be long. Collective.
  bool stops_evaluation() {
    bool stops = false;
    bool written = true;
    for (const auto& row : exchange_numbers(
             {stop_signal(), checkpoints_.share_written() ? 1 : 0}, "evaluation",
             comm_)) {
      stops = stops || row[0] != 0;
      written = written && row[1] != 0;
    }
    if (written) {
      checkpoints_.complete_shares();
    }
    return stops;
  }

  bool saves() const {
    return !config_.output.out.empty() && !config_.output.dry_run;
  }

  // Saves a checkpoint. `told`: whether the program's observer is called for the
  // checkpoint.
  void save(bool told = true) {
    if (!saves()) {
      return;
    }
    const TraceSpan span(trace_.get(), "checkpoint", "save checkpoint");
    reporter_.clock().pause();
    report_activity(Activity::saving);
    const auto start = SavePauses::Clock::now();
    // copy_state() must be called before own_state(), because the strategy may store
    // values in the state that own_state() returns.
    checkpoints_.copy_state();
    checkpoints_.save(
        {position_, end_.patience().best(), schedule_->plateau(),
         reporter_.time(position_)},
        own_state(), told);
    agreement_.saved();
    saved_step_ = position_.step;
    pauses_.add(start);
    reporter_.clock().resume();
    checkpoints_.poll();
  }

  Summary make_summary(const TestReport& test) {
    Summary summary;
    summary.test = test;
    summary.train_seconds = reporter_.clock().seconds();
    summary.samples_per_second = reporter_.clock().mean_rate();
    const auto steps =
        static_cast<double>(std::max<int64_t>(1, position_.step - first_step_));
    summary.test.metric = &parts_.loss.metric();
    summary.train_metric_value = reporter_.epoch_metric();
    summary.exposed_comm_ms_per_step =
        1000 * traffic(parts_, comm_).waited_seconds / steps;
    add_totals(summary, config_, parts_, comm_);
    summary.peak_memory_mib =
        total_memory(reporter_.peak_memory_mib(), config_.ranks.kind, comm_);
    summary.peak_device_memory_mib = total_device_memory(
        placement_.peak_bytes ? std::optional(placement_.peak_bytes()) : std::nullopt,
        parts_.arenas->device(), config_.ranks.kind, comm_);
    summary.mean_save_pause_ms =
        reduce_number(pauses_.mean_ms(), ReduceOp::max, "largest", comm_);
    summary.longest_save_pause_ms =
        reduce_number(pauses_.longest_ms(), ReduceOp::max, "largest", comm_);
    const bool early = end_.convergence().all() || position_.epoch < num_epochs_;
    summary.ended_by = early ? end_.reason() : "epochs";
    summary.has_validation = evaluation_.has_validation();
    summary.best_test_loss = end_.patience().best().loss;
    summary.best_test_step = end_.patience().best().step;
    summary.epochs = position_.epoch;
    summary.steps = position_.step;
    if (summary.ended_by == "patience" || summary.ended_by == "observer") {
      reporter_.say(describe_end(summary, config_.training, config_.output));
    }
    if (parts_.optimizer->scaler() != nullptr) {
      reporter_.say(describe_scaling(summary));
    }
    summary.program_seconds = reporter_.clock().program_seconds();
    directory_->finish(summary, config_);
    if (position_.step > first_step_) {
      reporter_.end();
    }
    return summary;
  }

  const RunConfig config_;
  const DatasetSplits& data_;
  Communicator& comm_;
  RunTrace trace_;
  Assembly parts_;
  RunCheckpoints checkpoints_;
  TrainingBatches batches_;
  // Number of epochs. A dry run ends with the epoch in which it begins.
  int64_t num_epochs_ = 0;
  // Number of steps that earlier processes of this run made.
  int64_t first_step_ = 0;
  // Step of the newest checkpoint; -1: none.
  int64_t saved_step_ = -1;
  // step_in_epoch at the end of this epoch.
  int64_t last_step_ = 0;
  std::unique_ptr<LrSchedule> schedule_;
  Agreement agreement_;
  // Set only if ranks step alone.
  std::optional<StopExchange> stop_exchange_;
  // Made after all checks that precede the first step.
  std::unique_ptr<RunDirectory> directory_;
  Reporter reporter_;
  SavePauses pauses_;
  Position position_;
  double lr_ = 0;
  RunEnd end_;
  const Placement placement_;
  RunEvaluation evaluation_;
  const FiniteCheck finite_check_;
};

}  // namespace

Summary run_training(
    RunConfig config, const DatasetSplits& data, const DataParts& data_parts,
    Communicator& comm, CustomParts own) {
  return TrainingRun(std::move(config), data, data_parts, comm, std::move(own)).run();
}

}  // namespace tandem
