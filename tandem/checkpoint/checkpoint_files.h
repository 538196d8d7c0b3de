#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

/// The two main files of a checkpoint. Before anything is loaded, hashes detect a file
/// that is damaged or belongs to another checkpoint:
/// - each file of a checkpoint has the hash of its own content (safetensors.h);
/// - model and training state have the "checkpoint_id", a hash of the training state;
/// - the training state has the hashes of all other files, under their names.
struct CheckpointFiles {
  SafetensorsFile model;
  SafetensorsFile training;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kTrainingFile = "training.safetensors";

/// Error for an intact checkpoint that has the format of another version of tandem.
class OtherFormat : public DataError {
 public:
  using DataError::DataError;
};

/// Throws DataError "[checkpoint] 'PATH' WHAT; use another checkpoint".
[[noreturn]] void fail_checkpoint(const std::string& path, const std::string& what);

/// Writes the files to `directory`, with the format version and the hashes.
/// `rank_files` are the bytes of the ranks' files in rank order, with or without hashes
/// (gather_rank_files()). Throws DataError.
void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files);

/// Parses `model` and `training`, the bytes of the two main files in `directory`.
/// Throws DataError if a file is damaged or the files belong to two checkpoints,
/// OtherFormat if they have another format.
CheckpointFiles parse_checkpoint_files(
    const std::string& directory, const std::string& model,
    const std::string& training);

/// Throws DataError if a model and a training state in `directory` belong to two
/// checkpoints. Throws OtherFormat if one of them has another format.
void check_same_checkpoint(const std::string& directory, const CheckpointFiles& files);

/// Returns whether a file has the format of this version of tandem.
bool has_this_format(const SafetensorsFile& file);

/// Parses only the model's file. Throws the errors of parse_checkpoint_files(), and
/// DataError for weights that another program saved.
SafetensorsFile parse_model_file(const std::string& bytes, const std::string& path);

/// Returns the hashes of the ranks' files that a training state lists, by file name.
std::map<std::string, std::string> rank_hashes(const SafetensorsFile& training);

/// Parses a rank's file. Throws DataError if it is damaged or its hash is not `hash`.
SafetensorsFile parse_rank_file(
    const std::string& bytes, const std::string& path, const std::string& hash);

/// Returns whether a file is part of a checkpoint of any format. Checks two metadata
/// entries, and one of them is sufficient. So a file with one flipped bit is still
/// recognized.
bool is_of_checkpoint(const SafetensorsFile& file);

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
