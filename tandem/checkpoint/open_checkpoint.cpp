#include "tandem/checkpoint/open_checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/shard_index.h"

namespace tandem {

namespace {

// A run cannot save this often while a process opens the files of a checkpoint.
constexpr int kMostTries = 100;

[[noreturn]] void fail_missing_file(const std::string& path) {
  throw DataError(
      "[checkpoint] '" + path +
      "' is missing, expected all files of the checkpoint; use another checkpoint, or "
      "name the file model.safetensors to use it alone");
}

std::string name_of_file(const SafetensorsReader& file) {
  return std::filesystem::path(file.path()).filename().string();
}

}  // namespace

OpenCheckpoint::OpenCheckpoint(const std::string& path) {
  for (int i = 0; i < kMostTries; ++i) {
    path_ = model_file(path);
    in_folder_ = path_ != path;
    model_.clear();
    training_.clear();
    rank_files_.clear();
    folder_ =
        Descriptor(open(parent_of(path_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const std::string name = std::filesystem::path(path_).filename().string();
    // A run renames the folder of a checkpoint before it removes the files.
    if (folder_ && open_model(name) && open_listed() && is_at_its_path()) {
      return;
    }
  }
  errno = ENOENT;
  fail_on_file("read", path_);
}

std::string OpenCheckpoint::file_path(const std::string& name) const {
  return parent_of(path_) + "/" + name;
}

bool OpenCheckpoint::is_at_its_path() const {
  return is_still_at(folder_.fd(), parent_of(path_), true);
}

// Returns nullopt if the file is missing.
std::optional<SafetensorsReader> OpenCheckpoint::open_file(
    const std::string& name) const {
  Descriptor file(openat(folder_.fd(), name.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) {
    return SafetensorsReader(std::move(file), file_path(name));
  }
  if (errno != ENOENT) {
    fail_on_file("read", file_path(name));
  }
  return std::nullopt;
}

// Opens a file that the checkpoint must have. Returns false if the checkpoint was
// removed meanwhile.
bool OpenCheckpoint::add(
    std::vector<SafetensorsReader>& files, const std::string& name) const {
  auto file = open_file(name);
  if (file) {
    files.push_back(std::move(*file));
  } else if (is_at_its_path()) {
    fail_missing_file(file_path(name));
  }
  return file.has_value();
}

bool OpenCheckpoint::open_model(const std::string& name) {
  if (is_shard_index(name)) {
    return open_index();
  }
  auto file = open_file(name);
  if (file) {
    model_.push_back(std::move(*file));
  }
  return file.has_value();
}

bool OpenCheckpoint::open_index() {
  const Descriptor file(openat(
      folder_.fd(), std::filesystem::path(path_).filename().c_str(),
      O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) {
    return false;
  }
  if (!file) {
    fail_on_file("read", path_);
  }
  index_ = read_file(file.fd(), path_);
  shard_of_ = parse_shard_index(index_, path_);
  std::vector<std::string> names;
  for (const auto& [tensor, shard] : shard_of_) {
    names.push_back(shard);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return add(model_, name);
  });
}

// Opens the training state and the files that it lists.
bool OpenCheckpoint::open_listed() {
  const std::string name = std::filesystem::path(path_).filename().string();
  if (name != kModelFile && name != kIndexFile) {
    return true;
  }
  auto training = open_file(kTrainingFile);
  if (!training) {
    return true;
  }
  training_.push_back(std::move(*training));
  for (const auto& [file, hash] : listed_hashes(training_[0].header().metadata)) {
    auto& files = is_shard_name(file, kModelShard)      ? model_
                  : is_shard_name(file, kTrainingShard) ? training_
                                                        : rank_files_;
    const bool is_open = std::any_of(files.begin(), files.end(), [&](const auto& open) {
      return name_of_file(open) == file;
    });
    if (!is_open && !add(files, file)) {
      return false;
    }
  }
  // The first shard has the description of the model.
  std::sort(model_.begin(), model_.end(), [](const auto& a, const auto& b) {
    return a.path() < b.path();
  });
  return true;
}

void OpenCheckpoint::require_training() const {
  if (!has_training()) {
    fail_missing_file(file_path(kTrainingFile));
  }
}

void OpenCheckpoint::check_together() const {
  for (const auto* files : {&model_, &training_, &rank_files_}) {
    for (const auto& file : *files) {
      stored_hash(file.header().metadata, file.path());
    }
  }
  const auto& training = training_.at(0).header().metadata;
  if (index_.empty()) {
    check_same_checkpoint(parent_of(path_), model_metadata(), training);
  } else {
    check_format(training, parent_of(path_));
    const auto listed = training.find(kIndexFile);
    if (listed == training.end() ||
        listed->second != sha256_hex(index_.data(), index_.size())) {
      fail_checkpoint(path_, "is damaged or belongs to another checkpoint");
    }
  }
  const auto hashes = listed_hashes(training);
  const auto check_all = [&](const auto& first, const auto& last) {
    std::for_each(first, last, [&](const SafetensorsReader& file) {
      const auto found = hashes.find(name_of_file(file));
      check_listed(
          file.path(), file.header().metadata,
          found == hashes.end() ? "" : found->second);
    });
  };
  if (!index_.empty()) {
    check_all(model_.begin(), model_.end());
  }
  check_all(training_.begin() + 1, training_.end());
  check_all(rank_files_.begin(), rank_files_.end());
}

FileMetadata OpenCheckpoint::training_metadata() const {
  require_training();
  auto training = training_[0].read_all(false);
  stored_hash(training.metadata, training_[0].path());
  return training.metadata;
}

void OpenCheckpoint::verify() const {
  for (const auto* files : {&model_, &training_, &rank_files_}) {
    for (const auto& file : *files) {
      file.read_all(false);
    }
  }
  require_training();
  check_together();
}

// Returns the model, whose tensors are in the order of the index.
SafetensorsFile OpenCheckpoint::read_model() const {
  SafetensorsFile model = model_[0].read_all();
  if (index_.empty()) {
    return model;
  }
  std::map<std::pair<std::string, std::string>, at::Tensor> found;
  for (const auto& file : model_) {
    for (auto& [name, tensor] : file.read_all().tensors) {
      found[{name, name_of_file(file)}] = tensor;
    }
  }
  model.tensors.clear();
  for (const auto& place : shard_of_) {
    const auto tensor = found.find(place);
    if (tensor == found.end()) {
      fail_checkpoint(
          path_, "names the tensor '" + place.first + "' in '" + place.second +
                     "', which does not have it");
    }
    model.tensors.push_back({place.first, tensor->second});
  }
  return model;
}

// Adds the training state to a model, and checks that all files belong together. Files
// of other formats need not name each other.
CheckpointFiles OpenCheckpoint::with_training(
    SafetensorsFile model, bool with_state) const {
  CheckpointFiles files{std::move(model), {}};
  if (in_folder_) {
    require_training();
  }
  for (const auto& file : training_) {
    auto read = file.read_all(with_state);
    stored_hash(read.metadata, file.path());
    auto& tensors = files.training.tensors;
    tensors.insert(tensors.end(), read.tensors.begin(), read.tensors.end());
  }
  for (const auto& file : rank_files_) {
    file.read_all(false);
  }
  if (has_training()) {
    files.training.metadata = training_[0].header().metadata;
  }
  if (has_training() && has_this_format(files.model.metadata)) {
    check_together();
  } else {
    check_same_ids();
  }
  return files;
}

// Without a training state, compares only the ids of the model's shards.
void OpenCheckpoint::check_same_ids() const {
  const auto id = checkpoint_id(model_metadata());
  for (const auto& file : model_) {
    if (checkpoint_id(file.header().metadata) != id) {
      fail_checkpoint(
          file.path(), "belongs to another checkpoint than '" + model_[0].path() + "'");
    }
  }
}

CheckpointFiles OpenCheckpoint::read(bool with_state) const {
  auto model = read_model();
  if (model.metadata.count(kSafetensorsHash) == 0 &&
      !is_of_checkpoint(model.metadata)) {
    throw DataError(
        "[checkpoint] '" + path_ +
        "' contains only weights, expected a checkpoint of tandem; use them with train "
        "--init, and add --epochs 0 --out RUN to make a checkpoint of them");
  }
  stored_hash(model.metadata, path_);
  check_format(model.metadata, path_);
  return with_training(std::move(model), with_state);
}

SafetensorsFile OpenCheckpoint::read_weights() const {
  auto model = read_model();
  const bool is_ours = is_of_checkpoint(model.metadata);
  if (is_ours || (in_folder_ && index_.empty())) {
    stored_hash(model.metadata, path_);
  }
  return is_ours ? with_training(std::move(model), false).model : model;
}

}  // namespace tandem
