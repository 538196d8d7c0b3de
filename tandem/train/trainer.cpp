#include "tandem/train/trainer.h"

#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/output.h"
#include "tandem/base/signals.h"
#include "tandem/data/data_parts.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/normalization.h"
#include "tandem/train/agreement/precision.h"
#include "tandem/train/agreement/start_checks.h"
#include "tandem/train/device_limits.h"
#include "tandem/train/training_run.h"

namespace tandem {

namespace {

DatasetSplits limited(const DatasetSplits& data, int64_t limit) {
  return {
      first_samples(data.train, limit), first_samples(data.test, limit),
      first_samples(data.validation, limit)};
}

// Throws ConfigError if --patience or --keep-best have no samples to evaluate.
void check_can_be_watched(const RunConfig& config, const DatasetSplits& data) {
  if ((config.training.patience > 0 || config.output.keep_best) &&
      data.test.size == 0 && data.validation.size == 0) {
    throw ConfigError(
        "[train] '" + data.train.name +
        "' has neither a test part nor a validation part, expected samples for " +
        (config.output.keep_best ? "keep_best" : "patience") +
        "; add samples, or leave out the setting");
  }
}

// Checks the samples of all parts. Labels of every part must be classes of the training
// part, as the model's outputs are.
void check_data(const RunConfig& config, const DatasetSplits& data) {
  check_can_be_watched(config, data);
  for (const auto* part : {&data.train, &data.test, &data.validation}) {
    check_samples(*part, data.train.num_classes, config.model.ignore_index);
    if (config.model.loss == LossKind::bce) {
      check_probabilities(*part);
    }
  }
}

// Returns the settings with the data's name, and with the normalization and the
// precision that all ranks use. Collective.
RunConfig settle(
    const RunConfig& config, const Dataset& train, const Placement& placement,
    Communicator& comm) {
  RunConfig settled = config;
  settled.data.source = recorded_name(train);
  settle_normalization(settled.data, train);
  check_same_normalization(settled.data, comm);
  settled.exec.precision = settle_precision(config, placement, comm);
  return settled;
}

}  // namespace

Summary train(
    const RunConfig& config, const DatasetSplits& all_data, Communicator& comm,
    CustomParts own) {
  reserve_standard_streams();
  check(config);
  stop_on_sigusr1(config.output.on_sigusr1 == OnSigusr1::stop);
  const DatasetSplits data = limited(all_data, config.data.limit);
  check_data(config, data);
  // Checks this before assembling the run, because ranks already communicate while they
  // assemble it.
  const DataParts data_parts = parts_of(data);
  check_same_run(config, data_parts, comm);
  comm.check_equal("whether the program has its own loss", own.loss ? "yes" : "no");
  comm.check_equal("whether there is an observer", own.observer ? "yes" : "no");
  const Placement placement = own.placement;
  RunConfig settled = settle(config, data.train, placement, comm);
  return within_device_memory(
      placement, smaller_batches("--batch-size", config.training.batch_size), [&] {
        return run_training(std::move(settled), data, data_parts, comm, std::move(own));
      });
}

}  // namespace tandem
