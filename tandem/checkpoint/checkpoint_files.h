#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

/// Metadata of a safetensors file.
using FileMetadata = std::map<std::string, std::string>;

/// The model and the training state of a checkpoint. Before anything is loaded, hashes
/// detect a file that is damaged or belongs to another checkpoint:
/// - each safetensors file of a checkpoint has the hash of its own content;
/// - all files have the "checkpoint_id". It is a hash of the training state or, if
///   several ranks write shards, the number of the save;
/// - kTrainingFile has the hashes of all other files, under their names.
struct CheckpointFiles {
  SafetensorsFile model;
  SafetensorsFile training;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kTrainingFile = "training.safetensors";
/// Names the shard of each tensor of the model, as in the models of Hugging Face
/// (https://huggingface.co/docs/safetensors). Exists in place of kModelFile.
constexpr const char* kIndexFile = "model.safetensors.index.json";
/// Parts of the names of shards (shard_name()).
constexpr const char* kModelShard = "model";
constexpr const char* kTrainingShard = "training";

/// Error for an intact checkpoint that has the format of another version of tandem.
class OtherFormat : public DataError {
 public:
  using DataError::DataError;
};

/// Throws DataError "[checkpoint] 'PATH' WHAT; use another checkpoint".
[[noreturn]] void fail_checkpoint(const std::string& path, const std::string& what);

/// Adds the format version and the id of a checkpoint to the metadata of a file.
void mark_checkpoint_file(FileMetadata& metadata, const std::string& id);

/// Writes the files of a checkpoint that one rank writes to `directory`, with the
/// format version and the hashes. `rank_files` are the bytes of the ranks' files in
/// rank order, with or without hashes (gather_rank_files()). Throws DataError.
void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files);

/// Writes the ranks' files to `directory`, and adds their hashes to `listed`.
void write_rank_files(
    const std::string& directory, const std::vector<std::string>& rank_files,
    FileMetadata& listed);

/// Throws OtherFormat if a file of a checkpoint has another format. Call this function
/// after the hash was compared, so that a flipped bit does not look like another
/// format.
void check_format(const FileMetadata& metadata, const std::string& path);

/// Throws DataError if a model and a training state in `directory` belong to two
/// checkpoints. Throws OtherFormat if one of them has another format.
void check_same_checkpoint(
    const std::string& directory, const FileMetadata& model,
    const FileMetadata& training);

/// Throws DataError unless `metadata` is that of the file that a training state lists
/// with the hash `hash`.
void check_listed(
    const std::string& path, const FileMetadata& metadata, const std::string& hash);

/// Returns whether a file has the format of this version of tandem.
bool has_this_format(const FileMetadata& metadata);

/// Returns the hashes of the files that a training state lists, by file name, except
/// kModelFile and kIndexFile.
std::map<std::string, std::string> listed_hashes(const FileMetadata& training);

/// Returns the hashes of the ranks' files that a training state lists, by file name.
std::map<std::string, std::string> rank_hashes(const FileMetadata& training);

/// Returns whether a file is part of a checkpoint of any format. Checks two metadata
/// entries, and one of them is sufficient. So a file with one flipped bit is still
/// recognized.
bool is_of_checkpoint(const FileMetadata& metadata);

/// Returns the checkpoint_id in the metadata of a file; "" if there is none.
std::string checkpoint_id(const FileMetadata& metadata);

/// Returns the name of a shard, such as "model-00002-of-00004.safetensors" for rank 1.
/// `what` is kModelShard or kTrainingShard.
std::string shard_name(const std::string& what, int rank, int size);

/// Returns whether `name` is the name of a shard of `what`.
bool is_shard_name(const std::string& name, const std::string& what);

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
