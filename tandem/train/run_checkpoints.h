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

/// How a run goes on from a checkpoint, and leaves them. All calls are collective, but
/// for those that say otherwise; what they are given outlives it.
///
/// Checkpoints are written while the run goes on, one at a time (CheckpointWriter). One
/// that fails throws DataError at rank 0 from the next of save(), look() and finish();
/// with on_save_error = warn it is a warning there, and finish() throws for the last
/// one. Values that are not finite throw in any case.
class RunCheckpoints {
 public:
  RunCheckpoints(
      const RunConfig& config, const Dataset& train, const DataParts& data,
      Communicator& comm, Assembly& parts);

  /// Where this rank writes, "" for nowhere; from now on no other run does (RunLock).
  /// Nothing is made: where the directory is not there yet, make_directory() locks it.
  /// Throws ConfigError when another run writes there, or an earlier run's checkpoints
  /// are there that this one does not go on from, or it is not this user's own.
  std::string directory();

  /// Makes it. Throws as directory(), and DataError.
  void make_directory();

  /// The newest checkpoint of the run, "" when there is none; on all ranks the same.
  /// Waits for a save in progress, and says nothing about one that failed.
  std::string newest();

  /// Loads the checkpoint that config.output.resume names, "auto" for the newest whole
  /// one, and sets `position` and `best`. False when the run begins anew. Throws as
  /// load_checkpoint(), and ConfigError when it is of other data or of settings that a
  /// run keeps.
  bool resume(Position& position, BestTest& best);

  /// Then, after Strategy::start(): what only this rank has, into the tensors of `own`.
  /// Where the checkpoint has nothing for these ranks, it says so.
  void resume_own(const std::vector<NamedTensor>& own) const;

  /// Makes the memory for copies of the run's state, so that no save has to. Not
  /// collective.
  void prepare();

  /// Begins to write a checkpoint into `directory` (rank 0's): what
  /// Strategy::collect_state() gave, and what only this rank has. Waits for the one
  /// before. `told`: whether take_complete() names it.
  void save(
      const std::string& directory, const Position& position, const BestTest& best,
      TrainingState state, const std::vector<NamedTensor>& own, bool told);

  /// Whether the save in progress is complete, or has failed: without waiting, not
  /// collective.
  void look();

  /// Waits for it. Not collective.
  void finish();

  /// Paths of checkpoints that are complete and that nobody was told of, at rank 0.
  std::vector<std::string> take_complete();

 private:
  CheckpointContent content(TrainingState state, const Position& position);
  void take(const std::optional<SaveOutcome>& outcome);
  // Takes it, and does what on_save_error says.
  void note(const std::optional<SaveOutcome>& outcome);
  std::string checkpoint_to_resume() const;
  void check_continues(const std::string& path, const CheckpointContent& earlier) const;

  void lock();

  const RunConfig& config_;
  const Dataset& train_;
  const DataParts& data_;
  Communicator& comm_;
  Assembly& parts_;
  // Of rank 0, which alone writes. The lock is held until the last save has ended.
  std::unique_ptr<RunLock> lock_;
  CheckpointWriter writer_;
  // Why the last save failed, where the run went on.
  std::exception_ptr failed_;
  bool told_ = false;
  std::vector<std::string> complete_;
  CheckpointContent texts_;
  // The checkpoint, "" in a run that began here.
  std::string resumed_from_;
  // Of its ranks' files, by name.
  std::map<std::string, std::string> rank_hashes_;
};

}  // namespace tandem
