#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Where in a run a checkpoint was taken. Order of the data, dropout masks and
/// learning rate follow from it, so nothing else needs saving.
struct Position {
  int64_t epoch = 0;
  // Optimizer steps done in this epoch, and since the run began.
  int64_t step_in_epoch = 0;
  int64_t step = 0;
};

/// A checkpoint is a directory:
///   model.safetensors     parameters and buffers, names as in Python's
///                         state_dict(); metadata: model, normalisation, classes
///   training.safetensors  optimizer state as "<state>/<parameter>"; metadata:
///                         position, the run's config
/// Two files, so that Python loads the first with strict=True. It is written
/// beside, flushed to disk and renamed: it is there whole or not at all. It does
/// not depend on strategy or world size.
struct CheckpointContent {
  TrainingState state;
  Position position;
  // What `eval` needs to know: model, mean, std, classes, input shape, ...
  std::map<std::string, std::string> description;
  // The run's config.toml.
  std::string config;
};

/// Writes DIR/step-00000469 and removes all but the newest `keep` (0: none).
/// Returns its path. Rank 0 calls. Throws DataError; older ones then stay.
std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content, int64_t keep);

/// Loads values into the tensors of `content`, in place: those of this rank are
/// enough.
///
/// `path` is a checkpoint's directory. Throws DataError when it is damaged or of
/// a newer format, ConfigError that names the first tensor that is missing or has
/// another shape when it is of another model.
void load_checkpoint(const std::string& path, CheckpointContent& content);

/// Only the model's part: `path` is the directory or its model.safetensors.
/// Returns the description. With `tensors` null only that is read.
std::map<std::string, std::string> load_model(
    const std::string& path, const std::vector<NamedTensor>* tensors);

/// The newest checkpoint in a directory, "" when there is none.
std::string newest_checkpoint(const std::string& directory);

}  // namespace tandem
