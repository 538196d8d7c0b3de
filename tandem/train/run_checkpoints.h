#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_writer.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/data_parts.h"
#include "tandem/train/assembly.h"
#include "tandem/train/report/observer.h"

namespace tandem {

/// Resumes a run from a checkpoint and saves checkpoints. Calls are collective unless
/// noted otherwise. The arguments of the constructor must outlive the object;
/// `observer` may be null.
///
/// Checkpoints are written while training continues, one at a time (CheckpointWriter).
/// If a save fails, the next call of copy_state(), poll() or finish() throws DataError
/// on the rank that could not write, usually rank 0. If ranks write shares, the
/// checkpoint is complete only after a later call of complete_shares(), copy_state() or
/// finish(). With on_save_error = warn, copy_state() and poll() warn instead, and
/// finish() throws only if the last save failed. ValuesNotFinite and FolderLost are
/// thrown with every setting of on_save_error.
class RunCheckpoints {
 public:
  RunCheckpoints(
      const RunConfig& config, const Dataset& train, const DataParts& data,
      Communicator& comm, Assembly& parts, Observer* observer);
  /// Removes shares that were not completed, because the run ends with an error.
  ~RunCheckpoints();
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;

  /// On rank 0, returns the directory of the run. If the directory exists, locks it
  /// against other runs (RunLock). Otherwise, make_directory() creates and locks it.
  /// Returns "" on other ranks, or if config.output.out is empty. Throws ConfigError if
  /// another run writes to the directory, or if the directory is a symbolic link or
  /// belongs to another user. Also throws ConfigError if it has checkpoints of an
  /// earlier run that this run does not continue.
  std::string directory();

  /// Creates and locks the directory, unless directory() has locked it. Throws
  /// DataError if the directory cannot be created; otherwise throws the errors of
  /// directory().
  void make_directory();

  /// Throws FolderLost if the directory was removed, renamed or replaced since
  /// directory() or make_directory() locked it. Not collective, and only rank 0 throws.
  void check_folder() const;

  /// Returns the lock of the directory; null before the directory is locked, and on
  /// other ranks.
  const RunLock* lock_of_directory() const {
    return lock_.get();
  }

  /// Returns the path of the run's newest checkpoint, the same on all ranks; "" if
  /// there is no checkpoint. Waits for a save in progress and ignores its failure.
  std::string newest();

  /// Like newest(), but returns the newest checkpoint of fewer than `step` steps.
  std::string newest_before(int64_t step);

  /// Loads the checkpoint that config.output.resume names ("auto" is the newest
  /// complete checkpoint). After a restart, loads the newest complete checkpoint of the
  /// run, if there is one. Sets `progress`. Returns false if the run does not resume.
  /// Throws the errors of load_checkpoint(). Throws ConfigError if the checkpoint was
  /// trained on other data, or with other values of settings that a run keeps
  /// (check_kept_settings()).
  bool resume(RunProgress& progress);

  /// Loads the state that only this rank has (Strategy::rank_state()) into the tensors
  /// of `own`. Call this function after resume() and Strategy::start(). Warns if the
  /// checkpoint has no such state for this strategy and number of ranks. Does nothing
  /// if the run was not resumed.
  void resume_own(const std::vector<NamedTensor>& own) const;

  /// Prepares the first save. Allocates memory for copies of the state, unless ranks
  /// divide the state. Throws ConfigError if they divide it and a rank cannot find the
  /// directory of rank 0.
  void prepare();

  /// Waits for the previous save, then copies the state of the run.
  void copy_state();

  /// Starts to write the copied state as a checkpoint in the directory of the run. Rank
  /// 0 writes it, or each rank its share (Strategy::divides_state()). `own` is the
  /// state that only this rank has. If `told` is true, poll() or finish() calls
  /// Observer::on_checkpoint() when this checkpoint is complete.
  void save(
      const RunProgress& progress, const std::vector<NamedTensor>& own, bool told);

  /// Returns whether this rank has written its share of a checkpoint that is not yet
  /// complete. Not collective.
  bool share_written() const {
    return share_ && writer_.is_done();
  }

  /// Waits until all ranks have written their shares. Rank 0 then starts to complete
  /// the checkpoint. If a rank could not write its share, handles the failure on this
  /// rank, and the checkpoint is discarded. Does nothing without a share.
  void complete_shares();

  /// Handles the result of the last save if the save has ended. Does not wait. Not
  /// collective.
  void poll();

  /// Waits for the save in progress and handles its result.
  void finish();

 private:
  CheckpointContent content(TrainingState state, const RunProgress& progress);
  bool divides_state() const {
    return parts_.strategy->divides_state();
  }
  KeptCheckpoints kept() const;
  bool saves_share() const;
  void find_savers();
  void start_share(const CheckpointContent& content);
  std::optional<SaveOutcome> end_shares();
  void take(const std::optional<SaveOutcome>& outcome);
  void tell_observer();
  // Calls take() with the outcome of a save. If the save failed, throws or warns, as
  // on_save_error selects.
  void note(const std::optional<SaveOutcome>& outcome);
  std::string checkpoint_to_resume() const;
  void check_continues(const std::string& path, const CheckpointContent& earlier) const;

  // Stores the properties of the ranks for checkpoints. Collective.
  void note_machine();
  // Logs the properties that changed since the checkpoint.
  void log_machine(const Machine& earlier) const;

  // Logs that the run starts from step 0, because there is no checkpoint to resume.
  void log_start() const;
  void lock();

  const RunConfig& config_;
  const Dataset& train_;
  const DataParts& data_;
  Communicator& comm_;
  Assembly& parts_;
  Observer* observer_;
  // Only rank 0 writes checkpoints. `lock_` is declared before `writer_`, so that the
  // directory stays locked until the last save has ended.
  std::unique_ptr<RunLock> lock_;
  CheckpointWriter writer_;
  // Error of the last save; null if the save succeeded.
  std::exception_ptr failed_;
  // The directory of checkpoints.
  std::string checkpoints_;
  // Ranks that find this directory, and write the shares. Empty if rank 0 writes alone.
  std::vector<int> savers_;
  // Number of the next save of shares.
  uint32_t next_number_ = 0;
  // The share that this rank writes, and on rank 0 the content of the checkpoint,
  // without tensors; not set if no checkpoint of shares is incomplete.
  std::optional<CheckpointShare> share_;
  CheckpointContent unfinished_;
  // True: the observer is called when the save in progress has succeeded.
  bool told_ = false;
  // Paths of complete checkpoints that the observer does not know yet.
  std::vector<std::string> complete_;
  // Description of the model, config and data hashes, which are the same in all
  // checkpoints of the run.
  CheckpointContent texts_;
  // Path of the checkpoint from which the run resumed; "" if it did not resume.
  std::string resumed_from_;
  // Hashes of the rank files in `resumed_from_`, by file name.
  std::map<std::string, std::string> rank_hashes_;
};

}  // namespace tandem
