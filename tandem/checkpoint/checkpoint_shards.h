#pragma once

#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/communicator.h"

namespace tandem {

/// The directory of checkpoints on the host of rank 0.
struct SharedDirectory {
  // Absolute.
  std::string path;
  // Ranks that find the directory, for example those of rank 0's host.
  std::vector<int> ranks;
  // CheckpointShare::number of the next save.
  uint32_t number = 0;
};

/// Prepares `directory`, which may differ on other ranks than rank 0, and finds the
/// ranks that can write to it. Collective. Throws DataError.
SharedDirectory find_shared_directory(const std::string& directory, Communicator& comm);

/// Writes the shards of a rank to the unfinished directory of a checkpoint: its tensors
/// of the model and of the optimizer's state. Throws DataError.
void write_shards(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share);

/// Writes the files of a checkpoint that list the shards of all ranks in `directory`:
/// the training state and, if the model is divided, its index. Also writes the ranks'
/// files. The index has `names` first, in this order. Throws DataError if a shard is
/// missing or belongs to another save.
void write_shard_lists(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share, const std::vector<std::string>& names);

}  // namespace tandem
