#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_writer.h"
#include "tandem/checkpoint/run_lock.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/data_parts.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Resumes a run from a checkpoint and saves checkpoints. Calls are collective unless
/// noted otherwise. The arguments of the constructor must outlive the object.
///
/// Checkpoints are written while training continues, one at a time (CheckpointWriter).
/// If one fails, the next call of save(), poll() or finish() throws DataError on rank
/// 0. With on_save_error = warn it is a warning, and only finish() throws, for the last
/// checkpoint. Values that are not finite throw in any case.
class RunCheckpoints {
 public:
  RunCheckpoints(
      const RunConfig& config, const Dataset& train, const DataParts& data,
      Communicator& comm, Assembly& parts);

  /// Returns the directory of the run, on rank 0, and locks it against other runs
  /// (RunLock). Returns "" on other ranks and if nothing is written. Creates nothing:
  /// if the directory does not exist, make_directory() locks it. Throws ConfigError if
  /// another run writes there, if it has checkpoints of an earlier run that this run
  /// does not continue, or if it belongs to another user.
  std::string directory();

  /// Creates the directory. Throws as directory(), and DataError.
  void make_directory();

  /// Returns the newest checkpoint of the run, "" if there is none; the same on all
  /// ranks. Waits for a save in progress and ignores its failure.
  std::string newest();

  /// Loads the checkpoint that config.output.resume names ("auto": the newest complete
  /// one) and sets `position` and `best`. Returns false if the run starts new. Throws
  /// as load_checkpoint(). Throws ConfigError if the checkpoint has other data, or
  /// other values of settings that a run keeps.
  bool resume(Position& position, BestTest& best);

  /// Loads the state that only this rank has into the tensors of `own`. Call it after
  /// resume() and Strategy::start(). Warns if the checkpoint has no state for these
  /// ranks.
  void resume_own(const std::vector<NamedTensor>& own) const;

  /// Allocates the memory for copies of the run's state before the first save. Not
  /// collective.
  void prepare();

  /// Begins to write a checkpoint into `directory` (on rank 0). Waits for the previous
  /// save. `state`: from Strategy::collect_state(). `own`: state that only this rank
  /// has. `told`: whether take_complete() returns the checkpoint.
  void save(
      const std::string& directory, const Position& position, const BestTest& best,
      TrainingState state, const std::vector<NamedTensor>& own, bool told);

  /// Checks without waiting whether the save in progress has ended. Not collective.
  void poll();

  /// Waits for the save in progress. Not collective.
  void finish();

  /// Returns the paths of checkpoints that were completed since the last call, on rank
  /// 0.
  std::vector<std::string> take_complete();

 private:
  CheckpointContent content(TrainingState state, const Position& position);
  void take(const std::optional<SaveOutcome>& outcome);
  // Calls take() and applies on_save_error.
  void note(const std::optional<SaveOutcome>& outcome);
  std::string checkpoint_to_resume() const;
  void check_continues(const std::string& path, const CheckpointContent& earlier) const;

  void lock();

  const RunConfig& config_;
  const Dataset& train_;
  const DataParts& data_;
  Communicator& comm_;
  Assembly& parts_;
  // The next members are used on rank 0, which alone writes. The lock is held until the
  // last save has ended, so it is declared before the writer.
  std::unique_ptr<RunLock> lock_;
  CheckpointWriter writer_;
  // Error of the last save; null if it succeeded.
  std::exception_ptr failed_;
  bool told_ = false;
  std::vector<std::string> complete_;
  // Texts that are the same in all checkpoints.
  CheckpointContent texts_;
  // The checkpoint from which the run resumed, "" for none.
  std::string resumed_from_;
  // Hashes of that checkpoint's rank files, by file name.
  std::map<std::string, std::string> rank_hashes_;
};

}  // namespace tandem
