#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

/// A checkpoint's files vouch for each other, so that one which is damaged, or comes
/// from another checkpoint, is found before anything is loaded:
/// - each has the hash of all it says (safetensors.h);
/// - both of these have the "checkpoint_id", the hash of the training state;
/// - the training state has the hashes of all others, under their names.
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

/// Writes them into `directory`, with the format and what ties them to each other.
/// `rank_files` are bytes in rank order, without hashes or with (rank_files.h). Throws
/// DataError.
void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files);

/// Both files of the checkpoint in `directory` from their bytes. Throws DataError when
/// one is damaged or they are of two checkpoints, OtherFormat for another format.
CheckpointFiles parse_checkpoint_files(
    const std::string& directory, const std::string& model,
    const std::string& training);

/// The model's file alone. Throws as parse_checkpoint_files(), and DataError for
/// weights that another program saved.
SafetensorsFile parse_model_file(const std::string& bytes, const std::string& path);

/// As parse_model_file(), for a model of any format version.
SafetensorsFile parse_whole_model(const std::string& bytes, const std::string& path);

/// The hashes of the ranks' files that a training state lists, by name.
std::map<std::string, std::string> rank_hashes(const SafetensorsFile& training);

/// A rank's file. Throws DataError when it is damaged or does not have this hash.
SafetensorsFile parse_rank_file(
    const std::string& bytes, const std::string& path, const std::string& hash);

/// Whether a file says that it is a checkpoint's, of any format. It says so in more
/// than one place beside its hash, so that one flipped bit does not hide it.
bool is_of_checkpoint(const SafetensorsFile& file);

}  // namespace tandem
