#include "tandem/data/sources.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/data/array_dataset.h"
#include "tandem/data/cifar.h"
#include "tandem/data/idx.h"
#include "tandem/data/image_dataset.h"
#include "tandem/data/images/image_listing.h"
#include "tandem/data/named_datasets.h"
#include "tandem/data/table_dataset.h"
#include "tandem/data/text_dataset.h"

namespace tandem {

namespace {

bool is_cifar_folder(const std::string& path) {
  return file_exists(path + "/" + cifar_files().front());
}

// Returns whether one of MNIST's four files is in the folder.
bool is_idx_folder(const std::string& path) {
  for (const char* part : {"/train", "/t10k"}) {
    for (const char* end :
         {"-images-idx3-ubyte", "-images-idx4-ubyte", "-labels-idx1-ubyte"}) {
      if (file_exists(path + part + end) || file_exists(path + part + end + ".gz")) {
        return true;
      }
    }
  }
  return false;
}

DatasetSplits load_cifar(const DataRequest& request, const Deadline&) {
  return load_cifar_folder(request.options.source);
}

DatasetSplits load_idx(const DataRequest& request, const Deadline&) {
  return load_idx_folder(request.options.source);
}

std::string all_files() {
  std::vector<std::string> files;
  for (const auto& source : data_sources()) {
    files.emplace_back(source.files);
  }
  return join(files);
}

// Describes a path without a known format. Throws DataError if it cannot be read.
std::string content_text(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return "has no known format";
  }
  auto names = list_directory(path);
  if (names.empty()) {
    return "is an empty folder";
  }
  constexpr size_t kMostNames = 3;
  const size_t num_more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - num_more);
  return "contains nothing in a known format, only " + join(names) +
         (num_more == 0 ? "" : fmt::format(" and {} more", num_more));
}

int64_t largest_class(const Dataset& data, int64_t ignored) {
  const int64_t numel = data.targets.numel();
  int64_t largest = 0;
  for (int64_t i = 0; i < data.size; ++i) {
    const int64_t first = data.place_of(i) * numel;
    for (int64_t at = first; at < first + numel; ++at) {
      const int64_t label = data.targets.integer(at);
      if (label < 0 && label != ignored) {
        throw DataError(fmt::format(
            "[data] '{}': the target of sample {} is {}, expected classes from 0 on; "
            "change the target, or set --ignore-index",
            data.name, i, label));
      }
      if (label != ignored) {
        largest = std::max(largest, label);
      }
    }
  }
  return largest;
}

void check_largest_class(
    const char* name, const Dataset& part, const Dataset& train, int64_t ignored) {
  const int64_t largest = largest_class(part, ignored);
  if (largest >= train.num_classes) {
    throw DataError(fmt::format(
        "[data] '{}': a {} label is {}, expected at most {} as in the training "
        "labels; check the label files",
        train.name, name, largest, train.num_classes - 1));
  }
}

}  // namespace

const std::vector<DataSource>& data_sources() {
  static const std::vector<DataSource> sources = {
      {"the six files of CIFAR-10", &is_cifar_folder, &load_cifar, {}, false, true},
      {"four IDX files such as MNIST's", &is_idx_folder, &load_idx, {}, false, true},
      {"NumPy arrays (x.npy and y.npy, train_x.npy and so on, or one .npz)",
       &has_arrays,
       &load_arrays,
       {"shape"}},
      {"a table (.csv, or a folder of train.csv and test.csv)",
       &has_table,
       &load_table,
       {"target", "shape"}},
      {"a text (.txt, or a folder of train.txt and test.txt)",
       &has_text,
       &load_text,
       {"block_size"},
       true,
       true},
      {"a folder of images (a folder per class, or train/ and test/ with them)",
       &has_image_folders,
       &load_image_folders,
       {"image_size"}}};
  return sources;
}

const DataSource* match_source(const std::string& path) {
  const auto& sources = data_sources();
  const auto found = std::find_if(
      sources.begin(), sources.end(),
      [&](const DataSource& source) { return source.matches(path); });
  return found == sources.end() ? nullptr : &*found;
}

const DataSource& find_source(const std::string& path) {
  if (const auto* source = match_source(path)) {
    return *source;
  }
  if (has_loose_images(path)) {
    throw DataError(
        "[data] '" + path +
        "' has images without classes, expected one folder per class; put the images "
        "of each class into a folder, and set --data to the folder above");
  }
  throw DataError(
      "[data] '" + path + "' " + content_text(path) + ", expected " + all_files() +
      "; set --data to such files");
}

void convert_to_values(Dataset& data) {
  Samples& targets = data.targets;
  if (targets.type == ElementType::float32 || targets.bytes.empty()) {
    return;
  }
  const auto is_number = [](const std::string& name) {
    return parse_number<double>(name).has_value();
  };
  const auto& names = data.class_names;
  if (!std::all_of(names.begin(), names.end(), is_number)) {
    throw ConfigError(fmt::format(
        "[config] the loss needs targets that are numbers, but the targets of '{}' are "
        "the classes {}; use --loss auto",
        data.name, join(names)));
  }
  const auto count = targets.bytes.size() / size_of(targets.type);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(targets.integer(static_cast<int64_t>(i)));
  }
  targets.bytes = std::move(values);
  targets.type = ElementType::float32;
  targets.is_mapped = false;
  if (targets.shape.empty()) {
    targets.shape = {1};
  }
}

void count_classes(DatasetSplits& splits, int64_t ignored) {
  Dataset& train = splits.train;
  if (!train.has_classes()) {
    train.num_classes = train.targets.numel();
  } else if (!train.tokens) {
    train.num_classes = std::max(
        largest_class(train, ignored) + 1,
        static_cast<int64_t>(train.class_names.size()));
  }
  for (const auto& [name, part] :
       {std::pair("validation", &splits.validation), {"test", &splits.test}}) {
    part->num_classes = train.num_classes;
    // A text may have bytes that the training part lacks.
    if (train.has_classes() && !train.tokens) {
      check_largest_class(name, *part, train, ignored);
    }
  }
}

}  // namespace tandem
