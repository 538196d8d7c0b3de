#include "tandem/data/sources.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

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

bool is_idx_folder(const std::string& path) {
  return !find_idx_folder(path).empty();
}

DatasetSplits load_cifar(const DataRequest& request, const Deadline&) {
  return load_cifar_folder(request.options.source);
}

DatasetSplits load_idx(const DataRequest& request, const Deadline&) {
  DatasetSplits splits = load_idx_folder(find_idx_folder(request.options.source));
  splits.train.name = splits.test.name = request.options.source;
  return splits;
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
       {"target", "columns", "categories", "shape"}},
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

}  // namespace tandem
