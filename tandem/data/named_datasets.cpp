#include "tandem/data/named_datasets.h"

#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/cifar.h"
#include "tandem/data/idx.h"
#include "tandem/data/write_digits.h"

namespace tandem {

namespace {

constexpr int64_t kDigitsTrain = 60'000;
constexpr int64_t kDigitsTest = 10'000;
// Number of classes of every named data set.
constexpr int64_t kMostClasses = 10;
// Folder of the digits in the cache. If draw_digits() changes, change this name.
constexpr const char* kDigitsVersion = "digits-1";

const std::vector<std::string> kIdxFiles = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

bool has_file(
    const std::string& folder, const NamedDataset& set, const std::string& file) {
  const std::string path = folder + "/" + file;
  return file_exists(path) || file_exists(path + set.ending);
}

// Returns the first file that is missing in the folder, or "".
std::string missing_file(const std::string& folder, const NamedDataset& set) {
  for (const auto& file : set.files) {
    if (!has_file(folder, set, file)) {
      return file;
    }
  }
  return "";
}

[[noreturn]] void fail_missing(const NamedDataset& set) {
  const std::string name = set.name;
  const std::string remedy = "run tandem data fetch " + name + ", or add --fetch";
  const auto folders = dataset_folders(name);
  for (const auto& folder : folders) {
    if (has_file(folder, set, set.files.front())) {
      throw DataError(fmt::format(
          "[data] {} in '{}' lacks {}; put it there, set --data to another folder, {}",
          set.title, folder, missing_file(folder, set), remedy));
    }
  }
  if (folders.empty()) {
    // Throws ConfigError, which names the variables to set.
    cache_directory();
  }
  throw DataError(fmt::format(
      "[data] {} is not in {}; put its files there, set --data to their folder, {}",
      set.title, join(folders, " or "), remedy));
}

// Returns the folder of the digits in the cache. Draws them at the first use.
std::string digits_folder(const Deadline& deadline) {
  const std::string folder = cache_directory() + "/" + kDigitsVersion;
  const auto is_complete = [&] {
    return std::all_of(kIdxFiles.begin(), kIdxFiles.end(), [&](const auto& file) {
      return file_exists(folder + "/" + file);
    });
  };
  if (!is_complete()) {
    const FileLock lock(cache_directory() + "/digits.lock", deadline);
    if (!is_complete()) {
      log_info("drawing 70,000 digits into " + folder + " (only at the first use)");
      write_digits(folder, kDigitsTrain, kDigitsTest);
    }
  }
  return folder;
}

}  // namespace

const std::vector<NamedDataset>& named_datasets() {
  static const std::vector<NamedDataset> sets = {
      {"digits",
       "digits",
       "60,000 + 10,000 digits drawn by tandem, offline",
       {},
       "",
       &load_idx_folder,
       {}},
      {"mnist",
       "MNIST",
       "MNIST: handwritten digits, 60,000 + 10,000",
       kIdxFiles,
       ".gz",
       &load_idx_folder,
       {}},
      {"fashion-mnist",
       "Fashion-MNIST",
       "Fashion-MNIST: clothing, 60,000 + 10,000",
       kIdxFiles,
       ".gz",
       &load_idx_folder,
       {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
        "Sneaker", "Bag", "Ankle boot"}},
      {"kmnist",
       "KMNIST",
       "KMNIST: cursive Japanese letters, 60,000 + 10,000",
       kIdxFiles,
       ".gz",
       &load_idx_folder,
       {"o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"}},
      {"cifar-10",
       "CIFAR-10",
       "CIFAR-10: photographs of 3 x 32 x 32, 50,000 + 10,000",
       cifar_files(),
       "",
       &load_cifar_folder,
       {}},
  };
  return sets;
}

const NamedDataset* find_named(const std::string& name) {
  for (const auto& set : named_datasets()) {
    if (name == set.name) {
      return &set;
    }
  }
  return nullptr;
}

DatasetSplits load_named(const NamedDataset& set, const Deadline& deadline) {
  const std::string folder =
      set.files.empty() ? digits_folder(deadline) : find_dataset(set.name);
  if (folder.empty()) {
    fail_missing(set);
  }
  DatasetSplits splits = set.load(folder);
  const int64_t num_classes = splits.train.num_classes;
  if (num_classes > kMostClasses) {
    throw DataError(fmt::format(
        "[data] '{}' has a label of {}, expected 0 to 9 for {}; fetch its label files "
        "again",
        folder, num_classes - 1, set.name));
  }
  splits.train.name = splits.test.name = set.name;
  if (!set.class_names.empty()) {
    auto names = set.class_names;
    names.resize(static_cast<size_t>(num_classes));
    splits.train.class_names = splits.test.class_names = names;
  }
  return splits;
}

std::vector<std::string> dataset_folders(const std::string& name) {
  std::vector<std::string> folders;
  if (const auto root = get_env("TANDEM_DATA"); root && !root->empty()) {
    folders.push_back(*root + "/" + name);
    // Only for mnist, because the files of other data sets have the same names.
    if (name == "mnist") {
      folders.push_back(*root);
    }
  }
  if (has_cache_directory()) {
    folders.push_back(cache_directory() + "/" + name);
  }
  return folders;
}

std::string find_dataset(const std::string& name) {
  const auto* set = find_named(name);
  if (set == nullptr || set->files.empty()) {
    return "";
  }
  for (const auto& folder : dataset_folders(name)) {
    if (missing_file(folder, *set).empty()) {
      return folder;
    }
  }
  return "";
}

bool dataset_is_missing(const std::string& name) {
  const auto* set = find_named(name);
  return set != nullptr && !set->files.empty() && find_dataset(name).empty();
}

}  // namespace tandem
