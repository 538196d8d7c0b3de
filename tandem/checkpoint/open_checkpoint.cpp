#include "tandem/checkpoint/open_checkpoint.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"

namespace tandem {

namespace {

// A run cannot save this often while a process opens three files.
constexpr int kMostTries = 100;

Descriptor open_in(const Descriptor& folder, const std::string& name) {
  return Descriptor(openat(folder.fd(), name.c_str(), O_RDONLY | O_CLOEXEC));
}

[[noreturn]] void fail_missing_file(const std::string& path) {
  throw DataError(
      "[checkpoint] '" + path +
      "' is missing, expected all files of the checkpoint; use another checkpoint, or "
      "name the file model.safetensors to use it alone");
}

}  // namespace

OpenCheckpoint::OpenCheckpoint(const std::string& path) {
  for (int i = 0; i < kMostTries; ++i) {
    path_ = model_file(path);
    in_folder_ = path_ != path;
    const std::string name = std::filesystem::path(path_).filename().string();
    folder_ =
        Descriptor(open(parent_of(path_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder_) {
      continue;
    }
    if (name == kModelFile) {
      training_ = open_in(folder_, kTrainingFile);
      if (!training_ && errno != ENOENT) {
        fail_on_file("read", training_path());
      }
    }
    model_ = open_in(folder_, name);
    if (!model_ && errno != ENOENT) {
      fail_on_file("read", path_);
    }
    // A run renames the folder of a checkpoint before it removes the files.
    if (model_ && is_at_its_path()) {
      return;
    }
  }
  errno = ENOENT;
  fail_on_file("read", path_);
}

bool OpenCheckpoint::is_at_its_path() const {
  return is_still_at(folder_.fd(), parent_of(path_), true);
}

std::string OpenCheckpoint::training_path() const {
  return parent_of(path_) + "/" + kTrainingFile;
}

CheckpointFiles OpenCheckpoint::read() const {
  return with_training(parse_model_file(read_file(model_.fd(), path_), path_));
}

SafetensorsFile OpenCheckpoint::read_weights() const {
  auto model = parse_safetensors(read_file(model_.fd(), path_), path_);
  const bool is_ours = is_of_checkpoint(model);
  if (in_folder_ || is_ours) {
    stored_hash(model, path_);
  }
  return is_ours ? with_training(std::move(model)).model : model;
}

SafetensorsFile OpenCheckpoint::read_training() const {
  if (!training_) {
    fail_missing_file(training_path());
  }
  auto training =
      parse_safetensors(read_file(training_.fd(), training_path()), training_path());
  stored_hash(training, training_path());
  return training;
}

// Adds the training state to a model, and checks that they and the ranks' files belong
// together. Files of other formats need not name each other.
CheckpointFiles OpenCheckpoint::with_training(SafetensorsFile model) const {
  CheckpointFiles files{std::move(model), {}};
  if (!training_ && in_folder_) {
    fail_missing_file(training_path());
  }
  if (training_) {
    files.training = read_training();
    if (has_this_format(files.model)) {
      check_same_checkpoint(parent_of(path_), files);
      check_rank_files(files.training);
    }
  }
  return files;
}

void OpenCheckpoint::check_rank_files(const SafetensorsFile& training) const {
  for (const auto& [name, hash] : rank_hashes(training)) {
    const std::string path = parent_of(path_) + "/" + name;
    const Descriptor file = open_in(folder_, name);
    if (file) {
      parse_rank_file(read_file(file.fd(), path), path, hash);
    } else if (errno != ENOENT) {
      fail_on_file("read", path);
    } else if (is_at_its_path()) {
      fail_missing_file(path);
    }
  }
}

}  // namespace tandem
