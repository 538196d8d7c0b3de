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

/// What a program brings of its own, on every rank or on none.
struct CustomParts {
  CustomParts() = default;
  // For who has no more than that.
  CustomParts(std::unique_ptr<Model> own_model) : model(std::move(own_model)) {}

  // Instead of the config's (see assemble()).
  std::unique_ptr<Model> model;
  // Instead of the config's; such a model runs on the eager executor.
  LossFunction loss;
  // Outlives train().
  Observer* observer = nullptr;
  // Where this rank computes (comm/cuda/cuda_library.h); on several ranks the
  // communicator must accept the device.
  Placement placement;
};

/// Trains as the config says, on this rank. Collective: every rank of `comm`
/// calls it with the same config and data. Rank 0 prints and writes.
///
/// `data` is used instead of config.data.source, which becomes its recorded_name().
/// config.data.limit applies to it. Before the first step labels are compared with
/// Dataset::num_classes, and so are the model's outputs (unless the program brings its
/// own loss).
///
/// Returns the summary, the same on every rank. Throws ConfigError, DataError or
/// CommError. A run that a signal stopped throws StoppedError if it has saved a
/// checkpoint, which needs an output.out, else Error; both say how to continue.
///
/// `own`: what the program brings.
Summary train(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    CustomParts own = {});

}  // namespace tandem
