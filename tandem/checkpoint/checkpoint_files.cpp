#include "tandem/checkpoint/checkpoint_files.h"

#include "tandem/base/text.h"
#include "tandem/checkpoint/rank_files.h"

namespace tandem {

namespace {

constexpr int64_t kFormat = 2;
constexpr const char* kFormatKey = "format_version";
constexpr const char* kIdKey = "checkpoint_id";
constexpr const char* kRankPrefix = "rank-";

[[noreturn]] void fail_checkpoint(const std::string& path, const std::string& what) {
  throw DataError("[checkpoint] '" + path + "' " + what + "; use another checkpoint");
}

const std::string& entry(
    const SafetensorsFile& file, const std::string& key, const std::string& path) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) {
    fail_checkpoint(path, "has no " + key);
  }
  return found->second;
}

// Throws OtherFormat if the file has another format. Called after the hash was
// compared, so that a flipped bit does not look like another format.
void check_format(const SafetensorsFile& file, const std::string& path) {
  const std::string& text = entry(file, kFormatKey, path);
  const int64_t format = parse_number<int64_t>(text).value_or(0);
  if (format != kFormat) {
    throw OtherFormat(
        "[checkpoint] '" + path + "' has format " + text + ", expected " +
        std::to_string(kFormat) + "; " +
        (format < kFormat ? "start from its weights with --init" : "update tandem"));
  }
}

SafetensorsFile parse_own(const std::string& bytes, const std::string& path) {
  auto file = parse_safetensors(bytes, path);
  stored_hash(file, path);
  return file;
}

}  // namespace

void write_checkpoint_files(
    const std::string& directory, CheckpointFiles files,
    const std::vector<std::string>& rank_files) {
  auto& listed = files.training.metadata;
  const int size = static_cast<int>(rank_files.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto& bytes = rank_files[static_cast<size_t>(rank)];
    if (!bytes.empty()) {
      const std::string name = rank_file_name(rank, size);
      listed[name] =
          write_safetensors(directory + "/" + name, parse_safetensors(bytes, name));
    }
  }
  listed[kFormatKey] = std::to_string(kFormat);
  files.model.metadata[kFormatKey] = listed[kFormatKey];
  // Model and training state contain each other's hash. Only one of them can contain
  // the hash of the complete other file. So the model has the hash of the training
  // state without the model's hash.
  const std::string id = safetensors_hash(files.training);
  files.model.metadata[kIdKey] = id;
  listed[kModelFile] = write_safetensors(directory + "/" + kModelFile, files.model);
  listed[kIdKey] = id;
  write_safetensors(directory + "/" + kTrainingFile, files.training);
}

CheckpointFiles parse_checkpoint_files(
    const std::string& directory, const std::string& model,
    const std::string& training) {
  const std::string model_path = directory + "/" + kModelFile;
  const std::string training_path = directory + "/" + kTrainingFile;
  CheckpointFiles files{
      parse_own(model, model_path), parse_own(training, training_path)};
  check_format(files.model, directory);
  check_format(files.training, directory);
  const bool same_id = entry(files.model, kIdKey, model_path) ==
                       entry(files.training, kIdKey, training_path);
  if (!same_id || stored_hash(files.model, model_path) !=
                      entry(files.training, kModelFile, training_path)) {
    fail_checkpoint(directory, "has a model and a training state of two checkpoints");
  }
  return files;
}

SafetensorsFile parse_model_file(const std::string& bytes, const std::string& path) {
  auto file = parse_safetensors(bytes, path);
  if (!has_hash(file) && !is_of_checkpoint(file)) {
    throw DataError(
        "[checkpoint] '" + path +
        "' contains only weights, expected a checkpoint of tandem; use them with train "
        "--init, and add --epochs 0 --out RUN to make a checkpoint of them");
  }
  stored_hash(file, path);
  check_format(file, path);
  return file;
}

std::map<std::string, std::string> rank_hashes(const SafetensorsFile& training) {
  std::map<std::string, std::string> hashes;
  for (const auto& [key, value] : training.metadata) {
    if (key.rfind(kRankPrefix, 0) == 0) {
      hashes[key] = value;
    }
  }
  return hashes;
}

SafetensorsFile parse_rank_file(
    const std::string& bytes, const std::string& path, const std::string& hash) {
  auto file = parse_own(bytes, path);
  if (stored_hash(file, path) != hash) {
    fail_checkpoint(
        path,
        "belongs to another checkpoint than the files next to it, or to another rank");
  }
  return file;
}

bool is_of_checkpoint(const SafetensorsFile& file) {
  return file.metadata.count(kIdKey) > 0 || file.metadata.count(kFormatKey) > 0;
}

}  // namespace tandem
