#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

/// The two main files of a checkpoint. Each file of a checkpoint identifies the others,
/// so that a file which is damaged, or belongs to another checkpoint, is detected
/// before anything is loaded:
/// - each has the hash of its whole content (safetensors.h);
/// - both files here have the "checkpoint_id", the hash of the training state;
/// - the training state has the hashes of all other files, under their names.
struct CheckpointFiles {
  SafetensorsFile model;
  SafetensorsFile training;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kTrainingFile = "training.safetensors";

/// An intact checkpoint of another format, which another version wrote.
class OtherFormat : public DataError {
 public:
  using DataError::DataError;
};

/// Writes the files into `directory`, with the format version and the hashes.
/// `rank_files` are bytes in rank order, with or without hashes (rank_files.h). Throws
/// DataError.
void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files);

/// Parses both files of the checkpoint in `directory`. Throws DataError if a file is
/// damaged or they belong to two checkpoints, OtherFormat for another format.
CheckpointFiles parse_checkpoint_files(
    const std::string& directory, const std::string& model,
    const std::string& training);

/// Parses only the model's file. Throws as parse_checkpoint_files(), and DataError for
/// weights that another program saved.
SafetensorsFile parse_model_file(const std::string& bytes, const std::string& path);

/// Parses the model's file of any format version, otherwise as parse_model_file().
SafetensorsFile parse_whole_model(const std::string& bytes, const std::string& path);

/// Returns the hashes of the ranks' files that a training state lists, by name.
std::map<std::string, std::string> rank_hashes(const SafetensorsFile& training);

/// Parses a rank's file. Throws DataError if it is damaged or has another hash.
SafetensorsFile parse_rank_file(
    const std::string& bytes, const std::string& path, const std::string& hash);

/// Returns whether a file is part of a checkpoint of any format. More than one entry in
/// addition to the hash shows that, so that one flipped bit does not hide it.
bool is_of_checkpoint(const SafetensorsFile& file);

}  // namespace tandem
