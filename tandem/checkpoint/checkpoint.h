#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/arena.h"
#include "tandem/formats/safetensors.h"
#include "tandem/optim/lr_schedule.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Position in a run at which a checkpoint was taken. The order of the data, the
/// dropout masks and the learning rate are computed from the position, so a checkpoint
/// does not store them.
struct Position {
  int64_t epoch = 0;
  // Number of optimizer steps finished in this epoch, and since the run began.
  int64_t step_in_epoch = 0;
  int64_t step = 0;
  // Global position in the epoch (data/sampler.h): number of samples that all ranks
  // together have read. A resumed run continues from it, even with another number of
  // ranks.
  int64_t samples_in_epoch = 0;
};

/// The lowest loss of a run's evaluations so far, on the validation part or, without a
/// validation part, on the test part.
struct BestTest {
  double loss = std::numeric_limits<double>::infinity();
  // Step of the evaluation with this loss; -1 before the first evaluation.
  int64_t step = -1;
  int64_t evaluations_since = 0;
};

/// Time of a run until a checkpoint, over all starts of the run. The values are 0 in
/// checkpoints of older versions.
struct RunTime {
  // Training time, in seconds, and number of samples that were trained in this time.
  double train_seconds = 0;
  double samples = 0;
  // Time of all programs, in seconds, and the part of it before the program that wrote
  // the checkpoint.
  double program_seconds = 0;
  double earlier_program_seconds = 0;
  // program_start() (base/program_clock.h) of the program that wrote the checkpoint.
  std::string program_start;
};

/// Properties of the ranks that decide the last bits of results. A text is "" if it is
/// unknown.
struct Machine {
  // Numbers of threads of the ranks, such as "2" or "1 and 2".
  std::string threads;
  // Instruction sets of the ranks, as texts for messages.
  std::string instruction_sets;
};

/// Progress of a run, from which it resumes.
struct RunProgress {
  Position position;
  BestTest best;
  PlateauState plateau;
  RunTime time;
};

/// Content of a checkpoint, in memory. On disk, a checkpoint is a directory:
///   model.safetensors     parameters and buffers, names as in Python's
///                         state_dict(); metadata: model, normalisation, classes
///   training.safetensors  optimizer state as "<state>/<parameter>"; metadata:
///                         position and time, the run's config, hashes of its data
///                         and of the other files
///   rank-0000-of-0004.safetensors and so on, only if ranks have separate state
///                         (checkpoint_files.h): one file for each rank
///
/// If ranks divide the optimizer's state (Strategy::divides_state()), each of them
/// writes its share, such as training-00001-of-00004.safetensors, and
/// training.safetensors has no tensors. If they also divide the model, shards such as
/// model-00001-of-00004.safetensors and an index (shard_index.h) replace
/// model.safetensors. Shards have whole tensors.
///
/// The model has separate files, so that Python can load it with strict=True. The
/// directory is written under another name, flushed to disk and renamed, so it is
/// either complete or absent. Except for the number of shards, the files do not depend
/// on the strategy or the world size. checkpoint_files.h describes how damaged files
/// and files of other checkpoints are detected.
struct CheckpointContent : RunProgress {
  TrainingState state;
  // Settings that `tandem eval` needs: model, mean, std, classes, input shape and
  // others.
  std::map<std::string, std::string> description;
  // Text of the run's config.toml.
  std::string config;
  // Names of buffers that may be infinite, such as the mask of attention. Empty in a
  // loaded checkpoint.
  std::set<std::string> infinite_buffers;
  // Description of the run's data (to_text() in data/data_parts.h), "" if unknown.
  std::string data;
  Machine machine;
  // Bytes of the ranks' files to save. Empty in a loaded checkpoint, whose files
  // load_rank_file() loads.
  std::vector<std::string> rank_files;
  // Hashes of the ranks' files of a loaded checkpoint, by name.
  std::map<std::string, std::string> rank_hashes;
};

/// Selects the checkpoints that save_checkpoint() keeps; all others are removed.
struct KeptCheckpoints {
  // Number of newest checkpoints to keep; 0: all.
  int64_t newest = 0;
  // True: also keep the checkpoint with the lowest loss (BestTest). The link
  // DIRECTORY/best points to this checkpoint.
  bool best = false;
};

/// Error for a model in which a parameter or buffer contains infinity or NaN.
class ValuesNotFinite : public DataError {
 public:
  using DataError::DataError;
};

/// Returns the names of the tensors without a gradient that contain infinity.
[[nodiscard]] std::set<std::string> infinite_buffers(
    const std::vector<NamedTensor>& state);

/// Writes the checkpoint DIRECTORY/step-00000469, removes checkpoints that are not
/// kept, and returns the path. Only rank 0 calls it, on any thread. Throws
/// ValuesNotFinite if the model has values that are not finite, except infinity in
/// `infinite_buffers`, and DataError for other errors. After an error, no older
/// checkpoint is removed.
///
/// `check_run`, if it is not empty, throws if the directory's parent, the folder of a
/// run, is lost (RunLock::check()). Missing parents are then not created.
std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const KeptCheckpoints& kept, const std::function<void()>& check_run = {});

/// The share of a rank in a checkpoint that several ranks write.
struct CheckpointShare {
  int rank = 0;
  int size = 1;
  // False: rank 0 writes the whole model.
  bool divides_model = false;
  // True if ranks write shards of the optimizer's state.
  bool has_state = false;
  // Number of this save, the same on all ranks. It differs from the numbers of saves
  // that may still be in progress.
  uint32_t number = 0;
};

/// Writes the shards of this rank, with the tensors of `content`, to an unfinished
/// directory in `directory`. Only rank 0 adds content.description. Every rank calls it,
/// on any thread; complete_checkpoint() then makes the directory a checkpoint. Throws
/// the errors of save_checkpoint().
void save_share(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share);

/// Makes a checkpoint of the shards that save_share() has written on all ranks, and
/// returns its path. Only rank 0 calls it, with a content without tensors. The index of
/// the model has `names` first, in this order. Otherwise as save_checkpoint(). Throws
/// DataError if a shard is missing.
std::string complete_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share, const std::vector<std::string>& names,
    const KeptCheckpoints& kept, const std::function<void()>& check_run = {});

/// Returns the unfinished directory of a save.
std::string unfinished_path(const std::string& directory, uint32_t number);

/// Creates a directory for checkpoints, whose parent exists. Removes the unfinished
/// files of a killed run.
void prepare_checkpoints(const std::string& directory);

/// Function for the content of a checkpoint whose tensors have names and shapes, but
/// not their values. Throws to reject the checkpoint.
using AcceptCheckpoint = std::function<void(const CheckpointContent& content)>;

/// Reads a checkpoint. Checks the hashes of all files, calls `accept`, and then passes
/// each tensor to `use`: the model's tensors, then the training state, whose `of_model`
/// is false. Returns the content without tensors.
///
/// Collective. The ranks that find the files of rank 0 at `path` read them together and
/// send the tensors to the others, one tensor at a time.
///
/// `path` is a checkpoint's directory on the host of rank 0. Throws DataError if the
/// checkpoint cannot be read, is damaged, has another format, or contains files of two
/// checkpoints.
CheckpointContent visit_checkpoint(
    const std::string& path, Communicator& comm, const AcceptCheckpoint& accept,
    const std::function<void(bool of_model, const NamedTensor& tensor)>& use);

/// Returns a checkpoint with all tensors, in main memory. Otherwise as
/// visit_checkpoint().
[[nodiscard]] CheckpointContent read_checkpoint(
    const std::string& path, Communicator& comm);

/// Loads a checkpoint into `content`. Copies the values into the tensors of
/// `content.state`, in place; other tensors of the checkpoint are ignored, and
/// only state.model_parts and state.optimizer_parts are written. If the checkpoint
/// belongs to another model, throws ConfigError with the first tensor that is missing
/// or has another shape. Otherwise as visit_checkpoint().
void load_checkpoint(
    const std::string& path, CheckpointContent& content, Communicator& comm,
    const AcceptCheckpoint& accept = [](const CheckpointContent&) {});

/// Returns the path of the file that contains a model, or of its index
/// (shard_index.h). If `path` is a checkpoint's directory or another directory with
/// model.safetensors or its index, the file is in that directory. If `path` is a run's
/// directory or its checkpoints/, the file is in the newest checkpoint. Otherwise the
/// file is `path` itself.
[[nodiscard]] std::string model_file(const std::string& path);

/// Returns the path of the checkpoint with the lowest loss of a run (BestTest). `path`
/// is the run's directory or its checkpoints/. Throws ConfigError if the run was not
/// evaluated yet, if it did not keep that checkpoint, or if `path` is no run.
[[nodiscard]] std::string best_checkpoint(const std::string& path);

/// Weights of a checkpoint: the model's weights, or the moving averages of the weights
/// (optim/ema.h). Buffers are always those of the model.
enum class CheckpointWeights { own, ema };

/// Reads the model in model_file(path): its tensors, and its description
/// (CheckpointContent::description) as metadata.
///
/// Opens all files of the checkpoint at one moment and checks their hashes
/// (open_checkpoint.h), so a run may save meanwhile. If `found` is not null, sets it to
/// the path of the model's file, because model_file(path) may change.
///
/// Throws DataError if a file is damaged, belongs to another checkpoint or has another
/// format, and ConfigError if the checkpoint has no moving averages. In a checkpoint at
/// step 0, the averages are not computed yet, so the weights are returned instead.
[[nodiscard]] SafetensorsFile read_model(
    const std::string& path, CheckpointWeights weights, std::string* found = nullptr);

/// Loads the model in model_file(path) into `tensors`, in place, and returns its
/// description (CheckpointContent::description). If `tensors` is null, loads no
/// tensors. Throws the errors of load_checkpoint() and read_model().
std::map<std::string, std::string> load_model_state(
    const std::string& path, const std::vector<NamedTensor>* tensors,
    CheckpointWeights weights = CheckpointWeights::own);

/// Returns the path of the newest checkpoint whose files exist and match their hashes,
/// or "" if there is no checkpoint. A damaged newer checkpoint causes a warning and is
/// renamed to "damaged-...", so that save_checkpoint() does not count it among the kept
/// checkpoints.
///
/// Throws DataError if all checkpoints are damaged, because starting again would
/// silently discard the run. Also throws it if a checkpoint cannot be read or has
/// another format.
[[nodiscard]] std::string newest_whole_checkpoint(const std::string& directory);

/// Renames the checkpoints after `step` to "left-...", so that a run that resumes from
/// `step` neither counts nor resumes them. Removes unfinished files of a killed run.
void leave_later_checkpoints(const std::string& directory, int64_t step);

}  // namespace tandem
