#pragma once

#include <string>

#include "tandem/base/descriptor.h"
#include "tandem/checkpoint/checkpoint_files.h"

namespace tandem {

/// The files of a checkpoint, opened at one moment. A run that saves meanwhile may
/// remove or replace the checkpoint; the object still reads the files that it opened.
/// Not thread-safe.
class OpenCheckpoint {
 public:
  /// Opens the file model_file(path) (checkpoint.h) and, if its name is
  /// model.safetensors, the training state next to it. If a run removes or replaces the
  /// checkpoint meanwhile, starts again, and so may open a newer checkpoint. Throws
  /// DataError if a file cannot be opened.
  explicit OpenCheckpoint(const std::string& path);

  /// Returns the path of the model's file.
  const std::string& path() const {
    return path_;
  }
  bool has_training() const {
    return static_cast<bool>(training_);
  }

  /// Reads the model and the training state, in main memory, and checks the hashes of
  /// all files of the checkpoint. Without has_training(), the training state is empty.
  ///
  /// Throws DataError if a file is missing, damaged or of another checkpoint, or if
  /// another program saved the model; OtherFormat for another format. The training
  /// state may be missing only if the path of the constructor is that of the model's
  /// file.
  CheckpointFiles read() const;

  /// As read(), but returns only the model. Also accepts models of other formats and
  /// programs. Only those of another program may lack a hash.
  SafetensorsFile read_weights() const;

  /// Reads only the training state. Throws DataError if it is missing or damaged.
  SafetensorsFile read_training() const;

 private:
  std::string training_path() const;
  CheckpointFiles with_training(SafetensorsFile model) const;
  void check_rank_files(const SafetensorsFile& training) const;
  bool is_at_its_path() const;

  // True if the path of the constructor is a folder.
  bool in_folder_ = false;
  std::string path_;
  Descriptor folder_;
  Descriptor model_;
  Descriptor training_;
};

}  // namespace tandem
