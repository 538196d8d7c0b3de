#include "tandem/train/report/reporter.h"

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/comm/exchange.h"
#include "tandem/data/sampler.h"
#include "tandem/launch/status/rank_status.h"

namespace tandem {

namespace {

// Returns this rank's number on its host. Ranks that are threads share a host and an
// environment.
int local_rank(const RunConfig& config, const Communicator& comm) {
  if (config.ranks.kind == RankKind::thread) {
    return comm.rank();
  }
  const auto env = read_rank_env();
  return env ? env->local_rank : 0;
}

}  // namespace

Reporter::Reporter(
    const RunConfig& config, Communicator& comm, Strategy& strategy, at::Device device,
    const Metric& metric, const Dataset& train)
    : config_(config),
      comm_(comm),
      strategy_(strategy),
      device_(device),
      metric_(metric),
      total_samples_(train.size),
      targets_per_sample_(static_cast<double>(train.targets.numel())),
      num_gpus_(static_cast<int64_t>(at::getNumGPUs())),
      shard_(strategy.data_shard()),
      in_lockstep_(strategy.in_lockstep()),
      own_numbers_(config.output.log_ranks != LogRanks::first),
      whole_batch_(config.training.divide_batch && !own_numbers_),
      progress_(
          config, comm.rank() == 0,
          reports(config, comm.rank(), local_rank(config, comm))) {}

void Reporter::add_step(
    const StepSums& sums, int64_t samples_before, double waited, bool has_samples) {
  sums_ += sums;
  epoch_sums_ += sums;
  // In the last step of an epoch this rank may have no samples.
  if (whole_batch_ || (has_samples && !sums.empty())) {
    batch_ = sums;
  }
  samples_before_ = samples_before;
  ++num_steps_;
  waited_ += waited;
}

at::Tensor Reporter::epoch_sums() {
  if (epoch_sums_.empty()) {
    epoch_sums_ =
        StepSums(at::zeros({3}, at::TensorOptions(at::kDouble).device(device_)));
  }
  return epoch_sums_.tensor();
}

LineValues Reporter::values_of_run() const {
  LineValues values;
  values.rank = comm_.rank();
  values.epochs = config_.training.epochs;
  values.seconds = clock_.seconds();
  values.program_seconds = clock_.program_seconds();
  // The name is in lower case, as in PyTorch's torch.device("cuda").
  values.device = c10::DeviceTypeName(device_.type(), true);
  values.num_gpus = num_gpus_;
  return values;
}

LineValues Reporter::values_at(
    const ReportPlace& place, const StepSums::Values& sums,
    const StepSums::Values& batch) const {
  LineValues values = values_of_run();
  values.epoch = place.position.epoch + 1;
  values.epoch_index = place.position.epoch;
  values.step = place.position.step_in_epoch;
  values.steps = place.steps_per_epoch;
  values.batch_index = std::max<int64_t>(0, values.step - 1);
  values.batch_loss = batch_loss(batch);
  values.own_samples = values.batch_index * own_samples_per_step();
  values.samples = samples_before_;
  values.total = total_samples_;
  values.loss = sums.mean_loss();
  set_metric(values, metric_, sums.metric, sums.samples);
  values.lr = place.lr;
  values.samples_per_second = clock_.recent_rate();
  return values;
}

int64_t Reporter::own_samples_per_step() const {
  const auto& training = config_.training;
  const int64_t samples = training.batch_size * training.accumulate;
  return training.divide_batch
             ? chunk_of(samples, shard_.num_shards, shard_.shard).count
             : samples;
}

int64_t Reporter::samples_until(const Position& position) const {
  return position.epoch * total_samples_ +
         std::min(position.samples_in_epoch, total_samples_);
}

void Reporter::resumed(
    const Position& position, const RunTime& earlier, bool has_epoch_sums) {
  clock_.continue_from(earlier);
  missing_steps_ = has_epoch_sums ? 0 : position.step_in_epoch;
  reported_samples_ = samples_until(position);
  directory_->note_resume(position, reported_samples_, earlier.train_seconds);
}

RunTime Reporter::time(const Position& position) const {
  const int64_t more = num_steps_ > 0 ? samples_until(position) - reported_samples_ : 0;
  return clock_.time(static_cast<double>(more));
}

// Rounds like loss.item() of a float32 model, so that the digits are the same as in
// Python.
double Reporter::batch_loss(const StepSums::Values& batch) const {
  const double loss = batch.mean_loss();
  return config_.exec.precision == Precision::fp64
             ? loss
             : static_cast<double>(static_cast<float>(loss));
}

// Returns the sums since the last report, and those of the last step. If ranks step
// together, the former cover all ranks, and the call is collective.
std::pair<StepSums::Values, StepSums::Values> Reporter::reported_sums() {
  if (!in_lockstep_) {
    return {sums_.values(), batch_.values()};
  }
  auto both = at::cat({sums_.tensor().cpu(), batch_.tensor().cpu()});
  comm_.all_reduce(both, ReduceOp::sum, "report")->wait();
  // For its last batch, a rank without batches, such as the first stage of a pipeline,
  // reports the sums of all ranks.
  const bool of_all = whole_batch_ || batch_.empty();
  return {
      StepSums(both.narrow(0, 0, 3)).values(),
      of_all ? StepSums(both.narrow(0, 3, 3)).values() : batch_.values()};
}

TrainReport Reporter::report_of(const ReportPlace& place, const LineValues& values) {
  const Position& position = place.position;
  TrainReport report;
  report.epoch = position.epoch;
  report.step_in_epoch = position.step_in_epoch;
  report.steps_per_epoch = place.steps_per_epoch;
  report.step = position.step;
  report.samples = samples_until(position);
  report.loss = values.loss;
  report.metric = &metric_;
  report.metric_value = values.metric;
  report.lr = place.lr;
  report.gradient_norm = strategy_.gradient_norm();
  report.samples_per_second = values.samples_per_second;
  report.exposed_comm_ms_per_step =
      1000 * waited_ / static_cast<double>(std::max<int64_t>(1, num_steps_));
  report.process_peak_memory_mib = memory_.sample();
  report.train_seconds = values.seconds;
  return report;
}

void Reporter::report(const ReportPlace& place, bool shown) {
  if (!in_lockstep_ && sums_.empty()) {
    return;  // converged, or without samples left
  }
  const auto own = sums_.values();
  const auto [sums, batch] = reported_sums();
  shown_batch_ = batch;
  // If ranks do not step together, this rank assumes that all ranks are equally fast.
  const double ranks =
      in_lockstep_ || shard_.shard < 0 ? 1 : static_cast<double>(shard_.num_shards);
  clock_.add(ranks * sums.samples / targets_per_sample_);
  const LineValues values = values_at(place, sums, batch);
  const TrainReport line = report_of(place, values);
  directory_->add(line);
  if (listener_ != nullptr) {
    listener_->on_training(line);
  }
  report_values(values.loss, values.lr, values.samples_per_second);
  if (shown && !own_numbers_) {
    progress_.show(values);
  } else if (shown && own.samples > 0) {
    progress_.show(values_at(place, own, batch));
  }
  note_lost_output();
  sums_ = {};
  reported_samples_ = line.samples;
  num_steps_ = 0;
  waited_ = 0;
}

void Reporter::note_lost_output() {
  const std::string lost = progress_.lost();
  if (!lost.empty() && !lost_noted_) {
    lost_noted_ = true;
    directory_->note_lost_output(lost);
    log_warning("[train] cannot write to " + lost + "; the run continues without it");
  }
}

EpochLoss Reporter::end_epoch(const ReportPlace& place, bool done) {
  const auto own = epoch_sums_.values();
  const auto sums =
      in_lockstep_ ? of_all_ranks(epoch_sums_, comm_, "epoch").values() : own;
  auto divided = own;
  if (config_.training.epoch_mean == EpochMean::dataset && own.samples > 0) {
    divided.samples = targets_per_sample_ * static_cast<double>(total_samples_);
  }
  const LineValues values = values_at(
      place, own_numbers_ ? divided : sums,
      whole_batch_ ? shown_batch_ : batch_.values());
  if (values.count > 0) {
    progress_.epoch(values, done, missing_steps_);
  }
  if (done) {
    epoch_sums_ = {};
    missing_steps_ = 0;
  }
  // A rank that has converged reads no samples.
  if (sums.samples > 0) {
    epoch_metric_ = metric_.value(sums.metric, sums.samples);
  }
  return {sums.mean_loss(), (in_lockstep_ ? sums : divided).mean_loss()};
}

void Reporter::start(int64_t samples_of_this_rank) {
  LineValues values = values_of_run();
  values.share = samples_of_this_rank;
  values.total = total_samples_;
  progress_.line("start_line", config_.output.start_line, values);
  clock_.resume();
}

void Reporter::converged(const ReportPlace& place) {
  if (config_.output.converged_line.empty()) {
    progress_.say(fmt::format(
        "Converged in epoch {}: the loss improved by less than {}",
        place.position.epoch + 1, config_.training.min_delta));
  }
  progress_.line(
      "converged_line", config_.output.converged_line,
      values_at(place, sums_.values(), whole_batch_ ? shown_batch_ : batch_.values()));
}

void Reporter::show(TestReport report) {
  report.train_seconds = clock_.seconds();
  directory_->add(report);
  if (listener_ != nullptr) {
    listener_->on_evaluation(report);
  }
  progress_.show(report, clock_.program_seconds());
  note_lost_output();
}

void Reporter::end() {
  LineValues values = values_of_run();
  values.samples_per_second = clock_.mean_rate();
  progress_.end(values);
  note_lost_output();
}

void Reporter::say(const std::string& line) {
  progress_.say(line);
}

}  // namespace tandem
