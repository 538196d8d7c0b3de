#include "tandem/train/run_evaluation.h"

#include <algorithm>

#include "tandem/train/device_limits.h"
#include "tandem/train/evaluation.h"

namespace tandem {

namespace {

constexpr int64_t kDryRunBatches = 2;

}  // namespace

RunEvaluation::RunEvaluation(
    const RunConfig& config, const DatasetSplits& data, const Assembly& parts,
    Communicator& comm, const Placement& placement)
    : config_(config),
      data_(data),
      parts_(parts),
      comm_(comm),
      placement_(placement),
      loading_(loader_options(config, data.train)) {
  loading_.batch_size = config.output.eval_batch_size;
  use_device(loading_, data.test, placement);
}

std::optional<TestReport> RunEvaluation::evaluate(
    const Dataset& part, const Position& position, const std::function<bool()>& stop) {
  const auto advice =
      smaller_batches("--eval-batch-size", config_.output.eval_batch_size);
  auto report = within_device_memory(placement_, advice, [&] {
    return evaluate_unless(
        stop, *parts_.strategy, comm_, part, loading_, parts_.loss.metric(),
        config_.output.dry_run ? kDryRunBatches : 0);
  });
  if (!report) {
    return report;
  }
  // After the last epoch, position.epoch is the number of epochs, but the model is that
  // of the last epoch.
  report->epoch = std::clamp<int64_t>(
      position.epoch, 0, std::max<int64_t>(1, config_.training.epochs) - 1);
  report->step = position.step;
  report->part = &part == &data_.validation ? DataPart::validation : DataPart::test;
  report->samples = position.epoch * data_.train.size +
                    std::min(position.samples_in_epoch, data_.train.size);
  return report;
}

}  // namespace tandem
