#include "tandem/checkpoint/checkpoint_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/comm/exchange.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/tensor_list.h"

namespace tandem {

namespace {

constexpr int64_t kFormat = 2;
constexpr const char* kFormatKey = "format_version";
constexpr const char* kIdKey = "checkpoint_id";
constexpr const char* kRankPrefix = "rank-";

const std::string& entry(
    const FileMetadata& metadata, const std::string& key, const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    fail_checkpoint(path, "has no " + key);
  }
  return found->second;
}

SafetensorsFile parse_own(const std::string& bytes, const std::string& path) {
  auto file = parse_safetensors(bytes, path);
  stored_hash(file.metadata, path);
  return file;
}

constexpr const char* kLabel = "rank state";
constexpr const char* kStrategy = "strategy";

// Returns the content of this rank's file, which rank 0 reads; "" if `hashes` has no
// file of this rank. Rank 0 has only one file at a time in memory. Collective.
std::string read_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    Communicator& comm) {
  std::string mine;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto name = rank_file_name(rank, comm.size());
    if (hashes.count(name) == 0) {
      continue;
    }
    std::string file;
    comm.on_rank_0(
        [&] {
          file = read_file(checkpoint + "/" + name);
          return "";
        },
        kLabel);
    if (rank == 0) {
      mine = std::move(file);
    } else if (comm.rank() == 0) {
      send_text(file, rank, kLabel, comm);
    } else if (comm.rank() == rank) {
      mine = receive_text(0, kLabel, comm);
    }
  }
  return mine;
}

}  // namespace

void fail_checkpoint(const std::string& path, const std::string& what) {
  throw DataError("[checkpoint] '" + path + "' " + what + "; use another checkpoint");
}

void mark_checkpoint_file(FileMetadata& metadata, const std::string& id) {
  metadata[kFormatKey] = std::to_string(kFormat);
  metadata[kIdKey] = id;
}

void write_rank_files(
    const std::string& directory, const std::vector<std::string>& rank_files,
    FileMetadata& listed) {
  const int size = static_cast<int>(rank_files.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto& bytes = rank_files[static_cast<size_t>(rank)];
    if (!bytes.empty()) {
      const std::string name = rank_file_name(rank, size);
      listed[name] =
          write_safetensors(directory + "/" + name, parse_safetensors(bytes, name));
    }
  }
}

void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files) {
  auto& listed = files.training.metadata;
  write_rank_files(directory, rank_files, listed);
  listed[kFormatKey] = std::to_string(kFormat);
  // Model and training state contain each other's hash. Only one of them can contain
  // the hash of the complete other file. So the model has the hash of the training
  // state without the model's hash.
  const std::string id = safetensors_hash(files.training);
  mark_checkpoint_file(files.model.metadata, id);
  listed[kModelFile] = write_safetensors(directory + "/" + kModelFile, files.model);
  listed[kIdKey] = id;
  write_safetensors(directory + "/" + kTrainingFile, files.training);
}

void check_format(const FileMetadata& metadata, const std::string& path) {
  const std::string& text = entry(metadata, kFormatKey, path);
  const int64_t format = parse_number<int64_t>(text).value_or(0);
  if (format != kFormat) {
    throw OtherFormat(
        "[checkpoint] '" + path + "' has format " + text + ", expected " +
        std::to_string(kFormat) + "; " +
        (format < kFormat ? "start from its weights with --init" : "update tandem"));
  }
}

void check_same_checkpoint(
    const std::string& directory, const FileMetadata& model,
    const FileMetadata& training) {
  const std::string model_path = directory + "/" + kModelFile;
  const std::string training_path = directory + "/" + kTrainingFile;
  check_format(model, directory);
  check_format(training, directory);
  const bool same_id =
      entry(model, kIdKey, model_path) == entry(training, kIdKey, training_path);
  if (!same_id ||
      stored_hash(model, model_path) != entry(training, kModelFile, training_path)) {
    fail_checkpoint(directory, "has a model and a training state of two checkpoints");
  }
}

void check_listed(
    const std::string& path, const FileMetadata& metadata, const std::string& hash) {
  if (stored_hash(metadata, path) != hash) {
    fail_checkpoint(
        path,
        "belongs to another checkpoint than the files next to it, or to another rank");
  }
}

bool has_this_format(const FileMetadata& metadata) {
  const auto found = metadata.find(kFormatKey);
  return found != metadata.end() && found->second == std::to_string(kFormat);
}

std::map<std::string, std::string> listed_hashes(const FileMetadata& training) {
  std::map<std::string, std::string> hashes;
  for (const auto& [key, value] : training) {
    if (ends_with(key, ".safetensors") && key != kModelFile) {
      hashes[key] = value;
    }
  }
  return hashes;
}

std::map<std::string, std::string> rank_hashes(const FileMetadata& training) {
  auto hashes = listed_hashes(training);
  for (auto entry = hashes.begin(); entry != hashes.end();) {
    entry = entry->first.rfind(kRankPrefix, 0) == 0 ? std::next(entry)
                                                    : hashes.erase(entry);
  }
  return hashes;
}

bool is_of_checkpoint(const FileMetadata& metadata) {
  return metadata.count(kIdKey) > 0 || metadata.count(kFormatKey) > 0;
}

std::string checkpoint_id(const FileMetadata& metadata) {
  const auto found = metadata.find(kIdKey);
  return found == metadata.end() ? "" : found->second;
}

std::string shard_name(const std::string& what, int rank, int size) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", what, rank + 1, size);
}

bool is_shard_name(const std::string& name, const std::string& what) {
  return name.rfind(what + "-", 0) == 0;
}

std::string rank_file_name(int rank, int size) {
  return fmt::format("rank-{:04}-of-{:04}.safetensors", rank, size);
}

std::vector<std::string> gather_rank_files(
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm) {
  const std::string mine =
      tensors.empty() ? ""
                      : unhashed_safetensors_bytes({tensors, {{kStrategy, strategy}}});
  auto files = gather_texts(mine, kLabel, comm);
  if (std::all_of(
          files.begin(), files.end(), [](const auto& file) { return file.empty(); })) {
    files.clear();
  }
  return files;
}

bool load_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm) {
  const std::string name = rank_file_name(comm.rank(), comm.size());
  const std::string path = checkpoint + "/" + name;
  const auto listed = hashes.find(name);
  const bool is_needed =
      reduce_count(tensors.empty() ? 0 : 1, ReduceOp::max, kLabel, comm) > 0;
  const auto bytes = is_needed ? read_rank_file(checkpoint, hashes, comm) : "";
  SafetensorsFile file;
  if (!tensors.empty() && listed != hashes.end()) {
    file = parse_own(bytes, path);
    check_listed(path, file.metadata, listed->second);
  }
  const bool fits = tensors.empty() || file.metadata[kStrategy] == strategy;
  if (reduce_count(fits ? 1 : 0, ReduceOp::min, kLabel, comm) == 0) {
    return false;
  }
  check_fits("checkpoint", path, file.tensors, tensors, Fit::complete);
  copy_values(file.tensors, tensors);
  return true;
}

}  // namespace tandem
