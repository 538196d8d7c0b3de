#include "tandem/checkpoint/weights.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/formats/dtypes.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/weights_format.h"

namespace tandem {

namespace {

constexpr const char* kReplicaPrefix = "module.";

WeightsFormat format_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(kWeightsStart, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    throw DataError(
        "[weights] cannot read '" + path +
        "'; name a checkpoint, a safetensors file or a file of torch.save");
  }
  start.resize(static_cast<size_t>(file.gcount()));
  // A pipe has no size; reading it reports the error.
  std::error_code ignored;
  return weights_format(start, std::filesystem::file_size(path, ignored));
}

// Reads a safetensors file. Files from other programs have no hash, but a checkpoint's
// file without a hash is damaged.
std::vector<NamedTensor> read_hashed(const std::string& path, bool in_checkpoint) {
  auto file = read_safetensors(path);
  if (in_checkpoint || is_of_checkpoint(file)) {
    stored_hash(file, path);
  }
  return std::move(file.tensors);
}

std::vector<NamedTensor> read_any(const std::string& path) {
  if (const auto inside = model_file(path); inside != path) {
    return read_hashed(inside, true);
  }
  switch (format_of(path)) {
    case WeightsFormat::safetensors:
      return read_hashed(path, false);
    case WeightsFormat::zip:
      return read_torch_file({path});
    case WeightsFormat::legacy_torch:
      throw DataError(
          "[weights] '" + path +
          "' has torch.save's format from before PyTorch 1.6; load it in Python and "
          "save it again");
    case WeightsFormat::unknown:
      break;
  }
  throw DataError(
      "[weights] '" + path +
      "' is not a checkpoint, a safetensors file or a file of torch.save, or it ends "
      "in its header; name another file");
}

bool is_of_replica(const NamedTensor& entry) {
  return entry.name.rfind(kReplicaPrefix, 0) == 0;
}

std::vector<NamedTensor> without(
    const std::vector<NamedTensor>& tensors, const NamePatterns& skip) {
  std::vector<NamedTensor> others;
  std::copy_if(
      tensors.begin(), tensors.end(), std::back_inserter(others),
      [&](const auto& entry) { return !matches_any(skip, entry.name); });
  return others;
}

// Throws ConfigError for tensors that the formats cannot represent.
void check_savable(const std::vector<NamedTensor>& tensors) {
  const auto fail = [](const std::string& name, const std::string& what) {
    throw ConfigError("[weights] tensor '" + name + "' " + what);
  };
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      fail(name, "occurs twice, expected once; rename one");
    }
    if (!tensor.defined()) {
      fail(name, "is undefined, expected values; leave it out");
    }
    if (find_dtype(tensor.scalar_type()) == nullptr) {
      fail(
          name, std::string("has dtype ") + c10::toString(tensor.scalar_type()) +
                    ", expected floating-point numbers of 16 to 64 bits, integers or "
                    "bool; convert it");
    }
  }
}

}  // namespace

std::vector<NamedTensor> read_weights(const std::string& path) {
  auto tensors = read_any(path);
  if (std::all_of(tensors.begin(), tensors.end(), is_of_replica)) {
    for (auto& entry : tensors) {
      entry.name.erase(0, std::string(kReplicaPrefix).size());
    }
  }
  return tensors;
}

void load_weights(
    const std::string& path, const std::vector<NamedTensor>& targets,
    const NamePatterns& skip) {
  const auto in_file = read_weights(path);
  auto names = tensor_names(targets);
  const auto more = tensor_names(in_file);
  names.insert(names.end(), more.begin(), more.end());
  check_patterns_match("init_skip", skip, names);
  const auto sources = without(in_file, skip);
  const auto loaded = without(targets, skip);
  check_fits("weights", path, sources, loaded, Fit::exact);
  copy_values(sources, loaded);
}

void save_weights(const std::string& path, const std::vector<NamedTensor>& tensors) {
  const bool is_torch = ends_with(path, ".pt") || ends_with(path, ".pth");
  if (!is_torch && !ends_with(path, ".safetensors")) {
    throw ConfigError(
        "[weights] path is '" + path +
        "', expected a name that ends in .pt, .pth or .safetensors; change the name");
  }
  check_savable(tensors);
  if (is_torch) {
    write_torch_file(path, tensors);
  } else {
    write_safetensors(path, {tensors, {}});
  }
}

}  // namespace tandem
