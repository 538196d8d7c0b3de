#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

// What a checkpoint holds beside the logical state: of each rank what only it has, such
// as parameters between averages. One file per rank, all written by rank 0, which owns
// the directory. A run with another number of ranks does without them.

/// The name of a rank's file in a checkpoint's directory.
std::string rank_file_name(int rank, int size);

/// The ranks' tensors as safetensors files, in rank order at rank 0 and empty at the
/// others; empty too when no rank has any. `strategy` is noted in them. They get their
/// hashes when they are written, since ranks wait for this. Collective.
std::vector<std::string> gather_rank_files(
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm);

/// Loads this rank's file of a checkpoint into `tensors`, in place. `hashes` are those
/// of the files that the checkpoint was saved with (checkpoint.h). Returns false, and
/// changes nothing on any rank, unless they are of this many ranks with this strategy.
/// Collective. Throws DataError for a file that is missing, damaged or of another
/// checkpoint, ConfigError for one that does not fit.
bool load_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm);

}  // namespace tandem
