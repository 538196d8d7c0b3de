#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

// A rank file contains the state that only one rank has, such as its parameters between
// two averages of local SGD. Rank 0, which owns the directory, writes and reads one
// file for each rank. A run that resumes with another number of ranks ignores these
// files.

/// Returns the name of a rank's file in a checkpoint's directory.
std::string rank_file_name(int rank, int size);

/// Gathers the ranks' tensors on rank 0. On rank 0, returns the bytes of one
/// safetensors file for each rank, in rank order; "" for a rank without tensors. The
/// list is empty on other ranks, or if no rank has tensors. The files contain the name
/// of `strategy`. The bytes do not yet contain the hashes: write_checkpoint_files()
/// adds them, so that the ranks do not wait for hashing. Collective.
std::vector<std::string> gather_rank_files(
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm);

/// Loads this rank's file of a checkpoint into `tensors`, in place. `checkpoint` is the
/// checkpoint's directory on the host of rank 0, which sends each rank its file.
/// `hashes` is CheckpointContent::rank_hashes. If another number of ranks or another
/// strategy saved the files, returns false and changes nothing on any rank. Collective.
///
/// Throws DataError for a file that is missing, damaged or from another checkpoint,
/// ConfigError for a file that does not match `tensors`.
bool load_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm);

}  // namespace tandem
