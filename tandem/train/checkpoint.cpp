#include "tandem/train/checkpoint.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/train/safetensors.h"

namespace tandem {

namespace {

constexpr const char* kFormat = "1";
constexpr const char* kModelFile = "/model.safetensors";
constexpr const char* kTrainingFile = "/training.safetensors";
constexpr const char* kPrefix = "step-";

std::string shape_text(const at::Tensor& tensor) {
  std::vector<std::string> dims;
  for (const int64_t dim : tensor.sizes()) {
    dims.push_back(std::to_string(dim));
  }
  return tensor.dim() == 0 ? "scalar" : join(dims, "x");
}

void check_format(const std::string& path, const SafetensorsFile& file) {
  const auto found = file.metadata.find("format_version");
  if (found != file.metadata.end() && found->second != kFormat) {
    throw DataError(
        "[checkpoint] '" + path + "' has format " + found->second +
        ", this program reads " + kFormat + "; update tandem");
  }
}

const at::Tensor* find(const SafetensorsFile& file, const std::string& name) {
  for (const auto& entry : file.tensors) {
    if (entry.name == name) {
      return &entry.tensor;
    }
  }
  return nullptr;
}

// Comes before the first tensor is changed: all or nothing.
void check_fits(
    const std::string& path, const SafetensorsFile& file,
    const std::vector<NamedTensor>& targets) {
  for (const auto& target : targets) {
    const auto* source = find(file, target.name);
    if (source == nullptr) {
      throw ConfigError(
          "[checkpoint] '" + path + "' has no tensor '" + target.name +
          "'; it is of another model or optimizer, name the right --model");
    }
    if (source->sizes() != target.tensor.sizes()) {
      throw ConfigError(
          "[checkpoint] '" + path + "': tensor '" + target.name + "' is " +
          shape_text(*source) + ", the model wants " + shape_text(target.tensor) +
          "; name the right --model");
    }
  }
}

void copy_into(const SafetensorsFile& file, const std::vector<NamedTensor>& targets) {
  for (const auto& target : targets) {
    target.tensor.detach().copy_(*find(file, target.name));
  }
}

int64_t number(
    const SafetensorsFile& file, const std::string& key, const std::string& path) {
  const auto found = file.metadata.find(key);
  char* end = nullptr;
  const int64_t value =
      found == file.metadata.end() ? -1 : std::strtoll(found->second.c_str(), &end, 10);
  if (value < 0 || *end != '\0') {
    throw DataError(
        "[checkpoint] '" + path + "' does not say its " + key +
        "; use another checkpoint");
  }
  return value;
}

std::vector<std::string> checkpoints_in(const std::string& directory) {
  std::vector<std::string> found;
  if (file_exists(directory)) {
    for (const auto& name : list_directory(directory)) {
      if (name.rfind(kPrefix, 0) == 0) {
        found.push_back(directory + "/" + name);
      }
    }
  }
  return found;
}

void rename_over(const std::string& from, const std::string& to) {
  remove_all(to);
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw DataError("[checkpoint] cannot rename '" + from + "' to '" + to + "'");
  }
}

}  // namespace

std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content, int64_t keep) {
  const std::string path =
      directory + fmt::format("/{}{:08}", kPrefix, content.position.step);
  const std::string temporary = directory + "/tmp-" + std::to_string(getpid());
  remove_all(temporary);
  make_directories(temporary);
  try {
    SafetensorsFile model{content.state.model, content.description};
    model.metadata["format_version"] = kFormat;
    write_safetensors(temporary + kModelFile, model);
    SafetensorsFile training{content.state.optimizer, {}};
    training.metadata = {
        {"format_version", kFormat},
        {"epoch", std::to_string(content.position.epoch)},
        {"step_in_epoch", std::to_string(content.position.step_in_epoch)},
        {"step", std::to_string(content.position.step)},
        {"config", content.config}};
    write_safetensors(temporary + kTrainingFile, training);
    rename_over(temporary, path);
  } catch (...) {
    remove_all(temporary);
    throw;
  }
  auto all = checkpoints_in(directory);
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < all.size(); ++i) {
    remove_all(all[i]);
  }
  return path;
}

void load_checkpoint(const std::string& path, CheckpointContent& content) {
  const auto model = read_safetensors(path + kModelFile);
  const auto training = read_safetensors(path + kTrainingFile);
  check_format(path, model);
  check_format(path, training);
  const Position position{
      number(training, "epoch", path), number(training, "step_in_epoch", path),
      number(training, "step", path)};
  check_fits(path, model, content.state.model);
  check_fits(path, training, content.state.optimizer);
  copy_into(model, content.state.model);
  copy_into(training, content.state.optimizer);
  content.position = position;
  content.description = model.metadata;
}

std::map<std::string, std::string> load_model(
    const std::string& path, const std::vector<NamedTensor>* tensors) {
  const bool is_directory = file_exists(path + kModelFile);
  const auto file = read_safetensors(is_directory ? path + kModelFile : path);
  check_format(path, file);
  if (tensors != nullptr) {
    check_fits(path, file, *tensors);
    copy_into(file, *tensors);
  }
  return file.metadata;
}

std::string newest_checkpoint(const std::string& directory) {
  const auto all = checkpoints_in(directory);
  return all.empty() ? "" : all.back();
}

}  // namespace tandem
