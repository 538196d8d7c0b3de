#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
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

/// Writes the files to `directory`, with the format version and the hashes.
/// `rank_files` are the bytes of the ranks' files in rank order, with or without hashes
/// (rank_files.h). Throws DataError.
void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files);

/// Parses `model` and `training`, the bytes of the two main files in `directory`.
/// Throws DataError if a file is damaged or the files belong to two checkpoints,
/// OtherFormat if they have another format.
CheckpointFiles parse_checkpoint_files(
    const std::string& directory, const std::string& model,
    const std::string& training);

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

}  // namespace tandem
