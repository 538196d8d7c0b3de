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

namespace tandem {

/// Parts of a run that the program defines itself. Each part, except the placement,
/// must be given on every rank or on none.
struct CustomParts {
  CustomParts() = default;
  /// Parts with a model only.
  CustomParts(std::unique_ptr<Model> own_model) : model(std::move(own_model)) {}

  // Replaces the config's model (see assemble()).
  std::unique_ptr<Model> model;
  // Replaces the config's loss; the run then uses the eager executor.
  LossFunction loss;
  // Must outlive train(). May be null.
  Observer* observer = nullptr;
  // Device of this rank (comm/cuda/cuda_library.h). With several ranks the communicator
  // must accept the device.
  Placement placement;
};

/// Trains a model with the settings of a config. Collective: every rank of `comm` calls
/// it with the same config and data. Rank 0 prints and writes files.
///
/// `data` replaces config.data.source, which is recorded as recorded_name(data.train).
/// config.data.limit applies to `data`. Before the first step, labels and the number of
/// the model's outputs are compared with Dataset::num_classes; a program's own loss
/// turns the comparison of outputs off.
///
/// Returns the summary, the same on every rank. Throws ConfigError, DataError or
/// CommError. If a signal stops the run, throws StoppedError if a checkpoint was saved,
/// which needs output.out, else Error; the message says how to continue.
Summary train(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    CustomParts own = {});

}  // namespace tandem
