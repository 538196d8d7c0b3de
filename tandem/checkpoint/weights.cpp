#include "tandem/checkpoint/weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/open_checkpoint.h"
#include "tandem/checkpoint/shard_index.h"
#include "tandem/formats/dtypes.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/weights_format.h"

namespace tandem {

namespace {

// Prefixes of PyTorch's DistributedDataParallel, of torch.compile, and of modules that
// contain the network as an attribute, such as Lightning's.
const std::string kPrefixes[] = {"module.", "_orig_mod.", "model."};
constexpr size_t kNumWrappers = 2;

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

std::vector<NamedTensor> read_any(const std::string& path) {
  if (model_file(path) != path || is_shard_index(path)) {
    return OpenCheckpoint(path).read_weights().tensors;
  }
  switch (format_of(path)) {
    case WeightsFormat::safetensors:
      return OpenCheckpoint(path).read_weights().tensors;
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

// Removes a prefix that all names have. Returns false if a name does not have it.
bool remove_prefix(std::vector<NamedTensor>& tensors, const std::string& prefix) {
  const bool found =
      !tensors.empty() &&
      std::all_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
        return entry.name.rfind(prefix, 0) == 0;
      });
  if (found) {
    for (auto& entry : tensors) {
      entry.name.erase(0, prefix.size());
    }
  }
  return found;
}

// Removes the first `count` of kPrefixes in any order, as long as no name is in
// `known`.
void remove_prefixes(
    std::vector<NamedTensor>& tensors, size_t count,
    const std::set<std::string>& known) {
  const auto is_known = [&](const auto& entry) { return known.count(entry.name) > 0; };
  for (size_t i = 0; i < count;) {
    if (std::any_of(tensors.begin(), tensors.end(), is_known)) {
      return;
    }
    i = remove_prefix(tensors, kPrefixes[i]) ? 0 : i + 1;
  }
}

// Throws DataError for NaN, and for an infinite parameter. A buffer may be infinite,
// such as the mask of attention.
void check_numbers(
    const std::string& path, const std::vector<NamedTensor>& sources,
    const std::vector<NamedTensor>& targets) {
  std::set<std::string> parameters;
  for (const auto& target : targets) {
    if (target.tensor.requires_grad()) {
      parameters.insert(target.name);
    }
  }
  for (const auto& [name, tensor] : sources) {
    const bool is_wrong = parameters.count(name) > 0
                              ? !tensor.isfinite().all().item<bool>()
                              : tensor.isnan().any().item<bool>();
    if (is_wrong) {
      throw DataError(
          "[weights] tensor '" + name + "' of '" + path +
          "' has a value that is not finite, expected finite numbers; name a file of "
          "an earlier step");
    }
  }
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
  remove_prefixes(tensors, kNumWrappers, {});
  return tensors;
}

void load_weights(
    const std::string& path, const std::vector<NamedTensor>& targets,
    const NamePatterns& skip) {
  auto names = tensor_names(targets);
  auto in_file = read_any(path);
  remove_prefixes(in_file, std::size(kPrefixes), {names.begin(), names.end()});
  const auto more = tensor_names(in_file);
  names.insert(names.end(), more.begin(), more.end());
  check_patterns_match("init_skip", skip, names);
  const auto sources = without(in_file, skip);
  const auto loaded = without(targets, skip);
  check_fits("weights", path, sources, loaded, Fit::exact);
  check_numbers(path, sources, loaded);
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
