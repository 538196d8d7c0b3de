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

/// Position in a run at which a checkpoint was taken. The order of the data, dropout
/// masks and the learning rate follow from it, so no other state of them is saved.
struct Position {
  int64_t epoch = 0;
  // Optimizer steps finished in this epoch, and since the run began.
  int64_t step_in_epoch = 0;
  int64_t step = 0;
  // Global position in the epoch (data/sampler.h): samples that all ranks together have
  // read. A run with another number of ranks continues from here.
  int64_t samples_in_epoch = 0;
};

/// The lowest test loss of a run until now.
struct BestTest {
  double loss = std::numeric_limits<double>::infinity();
  // -1 before the first evaluation.
  int64_t step = -1;
  int64_t evaluations_since = 0;
};

/// The content of a checkpoint, which is a directory:
///   model.safetensors     parameters and buffers, names as in Python's
///                         state_dict(); metadata: model, normalisation, classes
///   training.safetensors  optimizer state as "<state>/<parameter>"; metadata:
///                         position, the run's config, hashes of its data and of the
///                         other files
///   rank-0000-of-0004.safetensors ... only if ranks have separate state
///                         (rank_files.h), for a run of that many ranks
///
/// There are two files, so that Python loads the first with strict=True. The directory
/// is written under another name, flushed to disk and renamed, so it is either complete
/// or absent. The two files do not depend on the strategy or the world size.
/// checkpoint_files.h describes how files show that they are complete and belong
/// together.
struct CheckpointContent {
  TrainingState state;
  Position position;
  BestTest best;
  // Data for `eval`: model, mean, std, classes, input shape, ...
  std::map<std::string, std::string> description;
  // The run's config.toml.
  std::string config;
  // Training data (data/data_parts.h), "" if unknown.
  std::string data;
  // Bytes of the ranks' files, for saving. load_rank_file() loads them.
  std::vector<std::string> rank_files;
  // Hashes of the ranks' files of a loaded checkpoint, by name.
  std::map<std::string, std::string> rank_hashes;
};

/// Checkpoints that are kept.
struct KeptCheckpoints {
  // Number of newest checkpoints; 0: all.
  int64_t newest = 0;
  // The checkpoint of content.best.step too, to which the link DIR/best points.
  bool best = false;
};

/// Parameters or buffers that are infinite or not a number.
class ValuesNotFinite : public DataError {
 public:
  using DataError::DataError;
};

/// Writes DIR/step-00000469, removes checkpoints that are not kept, and returns the
/// path. Only rank 0 calls it, on any thread. Throws DataError, or ValuesNotFinite for
/// values that are not finite; older checkpoints then stay.
std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const KeptCheckpoints& kept);

/// Loads values into the tensors of `content`, in place. `content` needs only the
/// tensors of this rank. Before any tensor is compared or copied, `accept` gets the
/// checkpoint's content without tensors, and may throw.
///
/// `path` is a checkpoint's directory. Throws DataError if the checkpoint is damaged,
/// has another format, or contains files of two checkpoints. If it is of another model,
/// throws ConfigError with the first tensor that is missing or has another shape.
void load_checkpoint(
    const std::string& path, CheckpointContent& content,
    const std::function<void(const CheckpointContent&)>& accept =
        [](const CheckpointContent&) {});

/// Returns the file with a checkpoint's model: in `path` if that is a checkpoint's
/// directory, in the newest checkpoint if `path` is a run's directory or its
/// checkpoints/, otherwise `path` itself.
[[nodiscard]] std::string model_file(const std::string& path);

/// Loads only the model and returns the description. `path` is the directory or its
/// model.safetensors. If `tensors` is null, only the description is read. Throws as
/// load_checkpoint().
std::map<std::string, std::string> load_model(
    const std::string& path, const std::vector<NamedTensor>* tensors);

/// Returns the newest checkpoint that is complete, by its hashes, or "" if there is no
/// checkpoint. A damaged newer checkpoint causes a warning and is renamed to
/// "damaged-...", so that save_checkpoint() does not count it among the kept
/// checkpoints.
///
/// Throws DataError if all checkpoints are damaged (to start again without a request
/// would discard the run), or if a checkpoint cannot be read or has another format.
[[nodiscard]] std::string newest_whole_checkpoint(const std::string& directory);

/// Renames the checkpoints after `step` to "left-...", so that a run that resumes from
/// `step` neither counts nor resumes them. Removes unfinished files of a killed run.
void leave_later_checkpoints(const std::string& directory, int64_t step);

}  // namespace tandem
