#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_lock.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/data_parts.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// How a run goes on from a checkpoint, and leaves them. All calls are collective; what
/// they are given outlives it.
class Saving {
 public:
  Saving(
      const RunConfig& config, const Dataset& train, const DataParts& data,
      Communicator& comm, Assembly& parts);

  /// Where this rank writes, "" for nowhere; from now on no other run does (RunLock).
  /// Nothing is made: where the directory is not there yet, make_directory() locks it.
  /// Throws ConfigError when another run writes there, or an earlier run's checkpoints
  /// are there that this one does not go on from, or it is not this user's own.
  std::string directory();

  /// Makes it. Throws as directory(), and DataError.
  void make_directory();

  /// The newest checkpoint of the run, "" when there is none.
  std::string newest() const;

  /// Loads the checkpoint that config.output.resume names, "auto" for the newest whole
  /// one, and sets `position` and `best`. False when the run begins anew. Throws as
  /// load_checkpoint(), and ConfigError when it is of other data or of settings that a
  /// run keeps.
  bool resume(Position& position, BestTest& best);

  /// Then, after Strategy::start(): what only this rank has, into the tensors of `own`.
  /// Where the checkpoint has nothing for these ranks, it says so.
  void resume_own(const std::vector<NamedTensor>& own) const;

  /// Writes a checkpoint into `directory` (rank 0's): what Strategy::collect_state()
  /// gave, and what only this rank has. Returns its path at rank 0, "" on the others.
  std::string save(
      const std::string& directory, const Position& position, const BestTest& best,
      TrainingState state, const std::vector<NamedTensor>& own);

 private:
  CheckpointContent content(TrainingState state, const Position& position) const;
  std::string checkpoint_to_resume() const;
  void check_continues(const std::string& path, const CheckpointContent& earlier) const;

  void lock();

  const RunConfig& config_;
  const Dataset& train_;
  const DataParts& data_;
  Communicator& comm_;
  Assembly& parts_;
  // Of rank 0, which alone writes.
  std::unique_ptr<RunLock> lock_;
  // The checkpoint, "" in a run that began here.
  std::string resumed_from_;
  // Of its ranks' files, by name.
  std::map<std::string, std::string> rank_hashes_;
};

}  // namespace tandem
