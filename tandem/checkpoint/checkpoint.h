#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
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
  // Global position in the epoch (data/sampler.h): samples that all ranks together
  // have taken. Another number of ranks goes on from here.
  int64_t samples_in_epoch = 0;
};

/// The lowest test loss of a run so far.
struct BestTest {
  double loss = std::numeric_limits<double>::infinity();
  // -1: there was no evaluation.
  int64_t step = -1;
  int64_t evaluations_since = 0;
};

/// A checkpoint is a directory:
///   model.safetensors     parameters and buffers, names as in Python's
///                         state_dict(); metadata: model, normalisation, classes
///   training.safetensors  optimizer state as "<state>/<parameter>"; metadata:
///                         position, the run's config, hashes of its data and of the
///                         other files
///   rank-0000-of-0004.safetensors ... only where ranks have something of their own
///                         (rank_files.h), for a run of that many
/// Two files, so that Python loads the first with strict=True. It is written beside its
/// final place, flushed to disk and renamed, so it is there whole or not at all. The
/// two do not depend on strategy or world size. checkpoint_files.h says how files show
/// that they are whole and belong together.
struct CheckpointContent {
  TrainingState state;
  Position position;
  BestTest best;
  // What `eval` needs to know: model, mean, std, classes, input shape, ...
  std::map<std::string, std::string> description;
  // The run's config.toml.
  std::string config;
  // What it was trained on (data/data_parts.h), "" when unknown.
  std::string data;
  // Bytes of the ranks' files, to be saved. load_rank_file() loads them.
  std::vector<std::string> rank_files;
  // The hashes of the ranks' files of a loaded checkpoint, by name.
  std::map<std::string, std::string> rank_hashes;
};

/// Which checkpoints stay.
struct KeptCheckpoints {
  // So many of the newest; 0: all.
  int64_t newest = 0;
  // That of content.best.step as well, where the link DIR/best leads to.
  bool best = false;
};

/// Parameters or buffers that are infinite or not a number.
class ValuesNotFinite : public DataError {
 public:
  using DataError::DataError;
};

/// Writes DIR/step-00000469 and removes those that are not kept. Returns its path.
/// Only rank 0 calls it, from any thread. Throws DataError, and ValuesNotFinite for
/// such values; older checkpoints then stay.
std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const KeptCheckpoints& kept);

/// Loads values into the tensors of `content`, in place; it needs only those of this
/// rank. Before any is compared or copied, `accept` gets what the checkpoint says about
/// itself, without tensors, and may throw.
///
/// `path` is a checkpoint's directory. Throws DataError when it is damaged, of another
/// format, or holds files of two checkpoints, ConfigError that names the first tensor
/// that is missing or has another shape when it is of another model.
void load_checkpoint(
    const std::string& path, CheckpointContent& content,
    const std::function<void(const CheckpointContent&)>& accept =
        [](const CheckpointContent&) {});

/// The file with a checkpoint's model: in `path` when that is its directory, in the
/// newest one where `path` is a run's directory or its checkpoints/, else `path`
/// itself.
[[nodiscard]] std::string model_file(const std::string& path);

/// Only the model's part: `path` is the directory or its model.safetensors.
/// Returns the description. With `tensors` null only that is read. Throws as
/// load_checkpoint().
std::map<std::string, std::string> load_model(
    const std::string& path, const std::vector<NamedTensor>* tensors);

/// The newest checkpoint that is whole, hashes checked; "" when there is none at all. A
/// later one that is damaged is named in a warning and renamed to "damaged-...", so
/// that it does not count among those that save_checkpoint keeps.
///
/// Throws DataError when there are only damaged ones (to start anew unasked would
/// throw the run away), or when one is there but cannot be read or is of another
/// format.
[[nodiscard]] std::string newest_whole_checkpoint(const std::string& directory);

/// Renames the checkpoints after `step` to "left-...": a run that goes on from there
/// leaves them, and neither counts nor resumes them. What a killed run left
/// half-written goes.
void leave_later_checkpoints(const std::string& directory, int64_t step);

}  // namespace tandem
