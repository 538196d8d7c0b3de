#pragma once

#include <memory>
#include <utility>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"
#include "tandem/data/dataset.h"
#include "tandem/model/model.h"
#include "tandem/train/report/observer.h"
#include "tandem/train/report/report_listener.h"

namespace tandem {

/// Parts of a run that the calling program provides. Each part, except the listener and
/// the placement, must be given on every rank or on none.
struct CustomParts {
  CustomParts() = default;
  /// Constructs parts in which only the model is custom.
  CustomParts(std::unique_ptr<Model> own_model) : model(std::move(own_model)) {}

  // Replaces the config's model (see assemble()).
  std::unique_ptr<Model> model;
  // Replaces the config's loss; the run then uses the eager executor.
  LossFunction loss;
  // Observer of the run, which must outlive train(); null for a run without observer.
  Observer* observer = nullptr;
  // Receiver of this rank's reports, which must outlive train(); null for none. A
  // receiver on rank 0 gets the reports of the whole run.
  ReportListener* listener = nullptr;
  // Device of this rank (comm/cuda/cuda_library.h). With several ranks the communicator
  // must accept the device.
  Placement placement;
};

/// Trains a model with the settings of a config. Collective: every rank of `comm` calls
/// it with the same config and data. Rank 0 writes the files of the run.
///
/// `data` replaces config.data.source. The files of the run contain
/// recorded_name(data.train) as the source. config.data.limit applies to `data`. Before
/// the first step, compares the labels and, unless the loss is custom, the model's
/// outputs with the targets of the data.
///
/// Returns the summary. The test result is equal on every rank. Times, rates,
/// measurements and the training metric may differ; summary.json has those of rank 0.
/// Throws ConfigError, DataError, CommError or, if training fails, Error.
///
/// If a signal stops the run, throws StoppedError after a checkpoint was saved. Throws
/// Error instead if the run saves no checkpoints (output.out is empty, or a dry run).
/// The message explains how to continue.
Summary train(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    CustomParts own = {});

}  // namespace tandem
