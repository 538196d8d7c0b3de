#include "tandem/train/report/reporter.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/train/reading.h"

namespace tandem {

namespace {

// Thread ranks share a host, and have no environment of their own.
bool first_of_host(const RunConfig& config, const Communicator& comm) {
  if (config.ranks.kind == RankKind::thread) {
    return comm.rank() == 0;
  }
  const auto env = read_rank_env();
  return !env || env->local_rank == 0;
}

bool prints(const RunConfig& config, const Communicator& comm) {
  if (config.output.log_ranks == LogRanks::all) {
    return true;
  }
  return config.output.log_ranks == LogRanks::host ? first_of_host(config, comm)
                                                   : comm.rank() == 0;
}

}  // namespace

Reporter::Reporter(
    const RunConfig& config, Communicator& comm, const Strategy& strategy)
    : config_(config),
      comm_(comm),
      shard_(strategy.data_shard()),
      in_lockstep_(
          strategy.consistency() == Consistency::replicated ||
          strategy.consistency() == Consistency::sharded),
      own_numbers_(config.output.log_ranks != LogRanks::first),
      whole_batch_(config.training.divide_batch && !own_numbers_),
      progress_(config, comm.rank() == 0, prints(config, comm)),
      sums_(at::zeros({3}, at::kDouble)),
      epoch_sums_(at::zeros({3}, at::kDouble)),
      batch_(at::zeros({3}, at::kDouble)),
      shown_batch_(batch_) {}

void Reporter::add_step(const at::Tensor& sums, const ReportPlace& place) {
  sums_ += sums;
  epoch_sums_ += sums;
  // An epoch's last step may have none for this rank.
  if (whole_batch_ || sums[2].item<double>() > 0) {
    batch_.copy_(sums);
  }
  before_step_ = place;
}

LineValues Reporter::values_at(const ReportPlace& place, const at::Tensor& sums) const {
  const double* sum = sums.data_ptr<double>();
  const double samples = std::max(1.0, sum[2]);
  LineValues values;
  values.rank = comm_.rank();
  values.epoch = place.epoch + 1;
  values.epoch_index = place.epoch;
  values.epochs = config_.training.epochs;
  values.step = place.step_in_epoch;
  values.steps = place.steps_per_epoch;
  values.step_percent =
      100.0 * static_cast<double>(place.step_in_epoch) /
      static_cast<double>(std::max<int64_t>(1, place.steps_per_epoch));
  values.batch_index = std::max<int64_t>(0, place.step_in_epoch - 1);
  values.batch_percent =
      100.0 * static_cast<double>(values.batch_index) /
      static_cast<double>(std::max<int64_t>(1, place.steps_per_epoch));
  values.batch_loss = batch_loss();
  values.own_samples = values.batch_index * own_samples_per_step(config_, shard_);
  values.samples = before_step_.samples;
  values.total = place.total_samples;
  values.percent = 100.0 * static_cast<double>(values.samples) /
                   static_cast<double>(std::max<int64_t>(1, place.total_samples));
  values.loss = sum[0] / samples;
  values.accuracy = 100 * sum[1] / samples;
  values.correct = static_cast<int64_t>(sum[1]);
  values.count = static_cast<int64_t>(sum[2]);
  values.lr = place.lr;
  values.samples_per_second = clock_.recent_rate();
  values.seconds = clock_.seconds();
  values.minutes = values.seconds / 60;
  return values;
}

// As loss.item() of a float32 model: Python prints the digits of the rounded number.
double Reporter::batch_loss() const {
  const double* sum = shown_batch_.data_ptr<double>();
  const double loss = sum[0] / std::max(1.0, sum[2]);
  return config_.exec.precision == Precision::fp64
             ? loss
             : static_cast<double>(static_cast<float>(loss));
}

void Reporter::report(const ReportPlace& place, bool shown) {
  const auto own = sums_.clone();
  if (!in_lockstep_ && own.data_ptr<double>()[2] == 0) {
    return;  // nothing to tell of: converged, or without samples left
  }
  auto all = at::cat({sums_, batch_});
  if (in_lockstep_) {
    comm_.all_reduce(all, ReduceOp::sum, "report")->wait();
  }
  const auto sums = all.narrow(0, 0, 3);
  // A rank without batches, as a pipeline's first stage, tells of all ranks'.
  const bool reads = batch_.data_ptr<double>()[2] > 0;
  shown_batch_ = reads && !whole_batch_ ? batch_ : all.narrow(0, 3, 3);
  // Out of lockstep the others are taken to be as fast as this rank.
  const double ranks =
      in_lockstep_ || shard_.shard < 0 ? 1 : static_cast<double>(shard_.num_shards);
  clock_.add(ranks * sums.data_ptr<double>()[2]);
  const LineValues values = values_at(place, sums);
  TrainReport report;
  report.epoch = place.epoch;
  report.step_in_epoch = place.step_in_epoch;
  report.steps_per_epoch = place.steps_per_epoch;
  report.step = place.step;
  report.samples =
      place.epoch * place.total_samples + std::min(place.samples, place.total_samples);
  report.loss = values.loss;
  report.train_accuracy = values.accuracy;
  report.lr = place.lr;
  report.samples_per_second = values.samples_per_second;
  report.train_seconds = values.seconds;
  directory_->add(report);
  // A rank that read nothing has nothing of its own to say.
  if (shown && !own_numbers_) {
    progress_.show(values);
  } else if (shown && own.data_ptr<double>()[2] > 0) {
    progress_.show(values_at(place, own));
  }
  note_lost_output();
  sums_.zero_();
}

// Once: from there on it is known that lines may be missing.
void Reporter::note_lost_output() {
  const std::string lost = progress_.lost();
  if (lost.empty() || lost_noted_) {
    return;
  }
  lost_noted_ = true;
  directory_->note_lost_output(lost);
  log_warning("[train] cannot write to " + lost + "; the run goes on without");
}

double Reporter::end_epoch(const ReportPlace& place) {
  auto sums = epoch_sums_.clone();
  if (in_lockstep_) {
    comm_.all_reduce(sums, ReduceOp::sum, "epoch")->wait();
  }
  const LineValues values = values_at(place, own_numbers_ ? epoch_sums_ : sums);
  if (values.count > 0) {
    progress_.line("epoch_line", config_.output.epoch_line, values);
  }
  epoch_sums_.zero_();
  const double* sum = sums.data_ptr<double>();
  // A rank that converged earlier reads nothing any more.
  if (sum[2] > 0) {
    epoch_accuracy_ = 100 * sum[1] / sum[2];
  }
  return sum[0] / std::max(1.0, sum[2]);
}

void Reporter::start(int64_t samples_of_this_rank, int64_t total_samples) {
  LineValues values;
  values.rank = comm_.rank();
  values.epochs = config_.training.epochs;
  values.share = samples_of_this_rank;
  values.total = total_samples;
  progress_.line("start_line", config_.output.start_line, values);
  clock_.resume();
}

void Reporter::converged(const ReportPlace& place) {
  if (config_.output.converged_line.empty()) {
    progress_.say(fmt::format(
        "Converged in epoch {}: the loss improved by less than {}", place.epoch + 1,
        config_.training.min_delta));
  }
  progress_.line(
      "converged_line", config_.output.converged_line, values_at(place, sums_));
}

void Reporter::show(TestReport report) {
  report.train_seconds = clock_.seconds();
  directory_->add(report);
  progress_.show(report);
  note_lost_output();
}

void Reporter::end() {
  LineValues values;
  values.rank = comm_.rank();
  values.epochs = config_.training.epochs;
  values.seconds = clock_.seconds();
  values.minutes = values.seconds / 60;
  values.samples_per_second = clock_.mean_rate();
  progress_.end(values);
  note_lost_output();
}

void Reporter::say(const std::string& line) {
  progress_.say(line);
}

}  // namespace tandem
