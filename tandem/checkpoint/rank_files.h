#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

// Ranks' files hold the state that only one rank has, such as its parameters between
// averages. Rank 0, which owns the directory, writes one file for each rank. A run with
// another number of ranks resumes without them.

/// Returns the name of a rank's file in a checkpoint's directory.
std::string rank_file_name(int rank, int size);

/// Gathers the ranks' tensors on rank 0. Returns the bytes of one safetensors file for
/// each rank, in rank order. The list is empty on other ranks, or if no rank has
/// tensors. The files contain the name of `strategy`. Their hashes are added only when
/// the files are written, because all ranks wait for this call. Collective.
std::vector<std::string> gather_rank_files(
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm);

/// Loads this rank's file of a checkpoint into `tensors`, in place. `hashes` are the
/// hashes of the checkpoint's files, by name (CheckpointContent). If the files are from
/// another number of ranks or another strategy, returns false and changes nothing on
/// any rank. Collective.
///
/// Throws DataError for a file that is missing, damaged or from another checkpoint,
/// ConfigError for a file that does not match `tensors`.
bool load_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm);

}  // namespace tandem
