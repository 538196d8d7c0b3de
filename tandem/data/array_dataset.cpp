#include "tandem/data/array_dataset.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/data/data_memory.h"
#include "tandem/data/npy.h"
#include "tandem/data/sample_shape.h"

namespace tandem {

namespace {

using Names = std::vector<std::string>;

const Names kTrainInputs = {"train_x", "x_train", "x"};
const Names kTrainTargets = {"train_y", "y_train", "y"};
const Names kValidationInputs = {"val_x",   "x_val",        "valid_x",
                                 "x_valid", "validation_x", "x_validation"};
const Names kValidationTargets = {"val_y",   "y_val",        "valid_y",
                                  "y_valid", "validation_y", "y_validation"};
const Names kTestInputs = {"test_x", "x_test"};
const Names kTestTargets = {"test_y", "y_test"};

// Returns the names of the arrays of all parts.
std::set<std::string> known_names() {
  std::set<std::string> known;
  for (const auto* names :
       {&kTrainInputs, &kTrainTargets, &kValidationInputs, &kValidationTargets,
        &kTestInputs, &kTestTargets}) {
    known.insert(names->begin(), names->end());
  }
  return known;
}

// Arrays of a folder or of a .npz file.
class ArrayFiles {
 public:
  explicit ArrayFiles(std::string path) : path_(std::move(path)) {
    if (ends_with(path_, ".npz")) {
      arrays_ = read_npz(path_, known_names());
    }
  }

  // Returns the first array with one of the names.
  std::optional<NpyArray> find(const Names& names) const {
    for (const auto& name : names) {
      if (const auto found = arrays_.find(name); found != arrays_.end()) {
        return found->second;
      }
      const std::string file = path_ + "/" + name + ".npy";
      if (arrays_.empty() && file_exists(file)) {
        return read_npy(file);
      }
    }
    return std::nullopt;
  }

  NpyArray get(const Names& names) const {
    if (auto array = find(names)) {
      return std::move(*array);
    }
    throw DataError(fmt::format(
        "[data] '{}' has no array {}, expected inputs and targets; add it", path_,
        join(names, " or ")));
  }

 private:
  std::string path_;
  std::map<std::string, NpyArray> arrays_;
};

int64_t count_of(const NpyArray& array, const std::string& path, const char* what) {
  if (array.shape.empty()) {
    throw DataError(fmt::format(
        "[data] {} in '{}' are a single number, expected an array of samples; save an "
        "array whose first size is the number of samples",
        what, path));
  }
  return array.shape[0];
}

Samples samples_of(NpyArray array) {
  Samples samples;
  samples.type = array.type;
  samples.shape.assign(array.shape.begin() + 1, array.shape.end());
  samples.bytes = std::move(array.bytes);
  samples.is_mapped = array.is_mapped;
  return samples;
}

// Replaces bool elements by the numbers 0 and 1.
void convert_bool(NpyArray& array, const std::string& path) {
  if (array.is_bool) {
    check_data_memory("'" + path + "'", array.bytes.size() * sizeof(float));
    array.bytes = std::vector<float>(array.bytes.begin(), array.bytes.end());
    array.type = ElementType::float32;
    array.is_mapped = array.is_bool = false;
  }
}

Samples inputs_of(NpyArray array, const DataRequest& request) {
  convert_bool(array, request.options.source);
  Samples inputs = samples_of(std::move(array));
  if (!request.options.shape.empty()) {
    inputs.shape = parse_shape(request.options, inputs.numel());
  } else if (inputs.type == ElementType::uint8 && inputs.shape.size() == 2) {
    inputs.shape.insert(inputs.shape.begin(), 1);
  }
  return inputs;
}

Samples targets_of(NpyArray array) {
  Samples targets = samples_of(std::move(array));
  const bool is_class = targets.type != ElementType::float32;
  if (is_class && targets.shape == std::vector<int64_t>{1}) {
    targets.shape.clear();
  } else if (!is_class && targets.shape.empty()) {
    targets.shape = {1};
  }
  return targets;
}

Dataset dataset_of(NpyArray x, NpyArray y, const DataRequest& request) {
  const std::string& path = request.options.source;
  Dataset data;
  data.name = path;
  data.is_loadable = true;
  data.size = count_of(x, path, "inputs");
  if (count_of(y, path, "targets") != data.size) {
    throw DataError(fmt::format(
        "[data] '{}' has {} inputs, but {} targets, expected equal numbers; save both "
        "again",
        path, data.size, y.shape[0]));
  }
  data.inputs = inputs_of(std::move(x), request);
  data.targets = targets_of(std::move(y));
  return data;
}

// Logs that bytes are numbers, because images are divided by 255.
void log_meaning(const Dataset& train, const DataRequest& request) {
  if (request.logs_parts && train.has_byte_numbers()) {
    log_info(fmt::format(
        "[data] the inputs of '{}' are uint8 of the shape {}, so they are numbers, "
        "which are not divided by 255; for images, set --shape CHANNELS,HEIGHT,WIDTH",
        train.name, shape_text(train.inputs.shape)));
  }
}

template <typename Number>
bool are_one_hot(const uint8_t* bytes, int64_t rows, int64_t width) {
  const auto* numbers = reinterpret_cast<const Number*>(bytes);
  for (int64_t row = 0; row < rows; ++row, numbers += width) {
    if (std::count(numbers, numbers + width, Number(0)) != width - 1 ||
        std::count(numbers, numbers + width, Number(1)) != 1) {
      return false;
    }
  }
  return true;
}

// Throws DataError if each target is a one-hot row and no loss is set. A class per
// position, or numbers, would train another network than the user expects.
void check_are_not_one_hot(const Dataset& train, const DataRequest& request) {
  const Samples& targets = train.targets;
  if (!request.for_training || request.whole_targets != WholeTargets::automatic ||
      targets.shape.size() != 1 || targets.shape[0] < 2) {
    return;
  }
  const auto check = targets.type == ElementType::uint8   ? &are_one_hot<uint8_t>
                     : targets.type == ElementType::int64 ? &are_one_hot<int64_t>
                                                          : &are_one_hot<float>;
  if (check(targets.bytes.data(), train.size, targets.shape[0])) {
    throw DataError(fmt::format(
        "[data] the targets of '{}' are one-hot rows of {} numbers, expected a class "
        "number per sample; save y.argmax(1), or set --loss bce or mse for the numbers",
        train.name, targets.shape[0]));
  }
}

// Throws DataError if images have their channels last. Numbers of float32 can have such
// a shape, so a warning names it.
void check_channels(const Dataset& train, const DataRequest& request) {
  constexpr int64_t kMostChannels = 4;
  const auto& shape = train.inputs.shape;
  if (!request.for_training || !request.options.shape.empty() || train.has_indices() ||
      shape.size() != 3 || shape[2] > kMostChannels || shape[0] <= kMostChannels ||
      shape[1] <= kMostChannels) {
    return;
  }
  const std::string text = fmt::format(
      "[data] the inputs of '{}' are {}, which looks like images of height x width x "
      "channels, expected channels x height x width; save np.moveaxis(x, 3, 1), or set "
      "--shape {} to keep the shape",
      train.name, shape_text(shape), fmt::join(shape, ","));
  if (train.has_images()) {
    throw DataError(text);
  }
  if (request.logs_parts) {
    log_warning(text);
  }
}

void check_same_shapes(
    const Dataset& train, const std::string& part, const Dataset& other) {
  const auto check = [&](const char* what, const Samples& a, const Samples& b) {
    if (a.type != b.type || a.shape != b.shape) {
      throw DataError(fmt::format(
          "[data] '{}': {} of the training part are {} {}, of the {} part {} {}, "
          "expected equal types and shapes; save both again",
          train.name, what, name_of(a.type), shape_text(a.shape), part, name_of(b.type),
          shape_text(b.shape)));
    }
  };
  check("inputs", train.inputs, other.inputs);
  check("targets", train.targets, other.targets);
}

}  // namespace

bool has_arrays(const std::string& path) {
  return ends_with(path, ".npz") ||
         std::any_of(kTrainInputs.begin(), kTrainInputs.end(), [&](const auto& name) {
           return file_exists(path + "/" + name + ".npy");
         });
}

DatasetSplits load_arrays(const DataRequest& request, const Deadline&) {
  const ArrayFiles files(request.options.source);
  DatasetSplits splits;
  splits.train = dataset_of(files.get(kTrainInputs), files.get(kTrainTargets), request);
  check_channels(splits.train, request);
  check_are_not_one_hot(splits.train, request);
  log_meaning(splits.train, request);
  const auto load_other = [&](const char* part, const Names& x, const Names& y) {
    Dataset other;
    if (auto inputs = files.find(x)) {
      other = dataset_of(std::move(*inputs), files.get(y), request);
      check_same_shapes(splits.train, part, other);
    }
    return other;
  };
  splits.validation = load_other("validation", kValidationInputs, kValidationTargets);
  splits.test = load_other("test", kTestInputs, kTestTargets);
  if (splits.test.size == 0) {
    std::swap(splits.test, splits.validation);
  }
  return splits;
}

Dataset load_array_inputs(const DataRequest& request) {
  const std::string& path = request.options.source;
  NpyArray array = read_npy(path);
  Dataset data;
  data.name = path;
  data.size = count_of(array, path, "inputs");
  data.inputs = inputs_of(std::move(array), request);
  return data;
}

}  // namespace tandem
