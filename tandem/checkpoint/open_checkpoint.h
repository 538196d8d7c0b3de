#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/descriptor.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/formats/safetensors_reader.h"

namespace tandem {

/// The files of a checkpoint, opened at one moment. A run that saves meanwhile may
/// remove or replace the checkpoint; the object still reads the files that it opened.
/// Not thread-safe.
class OpenCheckpoint {
 public:
  /// Opens the file model_file(path) (checkpoint.h). For an index, opens the shards of
  /// the model. If the file is that of a checkpoint, also opens the training state next
  /// to it, and the files that the training state lists. If a run removes or replaces
  /// the checkpoint meanwhile, starts again, and so may open a newer checkpoint.
  ///
  /// Throws DataError if a file is missing or its header is damaged, and FileError if
  /// it cannot be opened or read.
  explicit OpenCheckpoint(const std::string& path);

  /// Returns the path of the model's file or index.
  const std::string& path() const {
    return path_;
  }

  /// Throws DataError unless the training state exists.
  void require_training() const;

  /// Throws DataError if the files belong to different checkpoints, OtherFormat if they
  /// have another format. Reads only headers.
  void check_together() const;

  /// The files with tensors of the model, of the training state, and of ranks.
  const std::vector<SafetensorsReader>& model() const {
    return model_;
  }
  const std::vector<SafetensorsReader>& training() const {
    return training_;
  }
  const std::vector<SafetensorsReader>& rank_files() const {
    return rank_files_;
  }

  /// Returns the metadata of the model, which of shards are those of the first.
  const FileMetadata& model_metadata() const {
    return model_.front().header().metadata;
  }
  /// Reads the training state without its shards, and returns its metadata. Throws
  /// DataError if it is missing or damaged.
  FileMetadata training_metadata() const;

  /// Reads all files and checks their hashes, and check_together(). At most one tensor
  /// at a time is in memory.
  void verify() const;

  /// Reads the model and the training state, in main memory, and checks the hashes of
  /// all files of the checkpoint. The training state has tensors only with
  /// `with_state`. Without has_training(), it is empty.
  ///
  /// Throws DataError if a file is missing, damaged or of another checkpoint, or if
  /// another program saved the model; OtherFormat for another format. The training
  /// state may be missing only if the path of the constructor is that of the model's
  /// file.
  CheckpointFiles read(bool with_state) const;

  /// As read(), but returns only the model. Also accepts models of other formats and
  /// programs. Only those of another program may lack a hash.
  SafetensorsFile read_weights() const;

  bool has_training() const {
    return !training_.empty();
  }

 private:
  bool open_model(const std::string& name);
  bool open_listed();
  bool open_index();
  std::optional<SafetensorsReader> open_file(const std::string& name) const;
  bool add(std::vector<SafetensorsReader>& files, const std::string& name) const;
  std::string file_path(const std::string& name) const;
  bool is_at_its_path() const;
  SafetensorsFile read_model() const;
  CheckpointFiles with_training(SafetensorsFile model, bool with_state) const;
  void check_same_ids() const;

  // True if the path of the constructor is a folder.
  bool in_folder_ = false;
  std::string path_;
  Descriptor folder_;
  // Text of the index; "" for a model in one file. Names of tensors and of their
  // shards, in the order of the index.
  std::string index_;
  std::vector<std::pair<std::string, std::string>> shard_of_;
  std::vector<SafetensorsReader> model_;
  // kTrainingFile, then its shards; empty without a training state.
  std::vector<SafetensorsReader> training_;
  std::vector<SafetensorsReader> rank_files_;
};

}  // namespace tandem
