// The data sets that have a name, and the folders of their files.

#include "tandem/data/named_datasets.h"

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
// Last file of digits that is written. If it exists, the other three files exist too.
constexpr const char* kLastDigitsFile = "t10k-labels-idx1-ubyte";
// Folder of the digits in the cache. If draw_digits() changes, change this name.
constexpr const char* kDigitsVersion = "digits-1";

const std::vector<std::string> kIdxFiles = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

// A data set whose files the user has to provide.
struct FileSet {
  const char* name;
  // Name in messages.
  const char* title;
  const char* help;
  std::vector<std::string> files;
  // Suffix that is allowed at the end of each file's name, such as ".gz"; "" for none.
  const char* ending;
  DatasetSplits (*load)(const std::string& folder);
  // Names of the classes; empty: the names from `load`.
  std::vector<std::string> class_names;
};

const std::vector<FileSet>& file_sets() {
  static const std::vector<FileSet> sets = {
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

const FileSet* find_set(const std::string& name) {
  for (const auto& set : file_sets()) {
    if (name == set.name) {
      return &set;
    }
  }
  return nullptr;
}

bool has_file(const std::string& folder, const FileSet& set, const std::string& file) {
  const std::string path = folder + "/" + file;
  return file_exists(path) || file_exists(path + set.ending);
}

// Returns the first file that is missing in the folder, or "".
std::string missing_file(const std::string& folder, const FileSet& set) {
  for (const auto& file : set.files) {
    if (!has_file(folder, set, file)) {
      return file;
    }
  }
  return "";
}

[[noreturn]] void fail_missing(const FileSet& set) {
  const std::string name = set.name;
  const std::string remedy = "run tandem data fetch " + name + ", or add --fetch";
  const auto folders = dataset_folders(name);
  for (const auto& folder : folders) {
    if (has_file(folder, set, set.files.front())) {
      throw DataError(
          "[data] " + std::string(set.title) + " in '" + folder + "' lacks " +
          missing_file(folder, set) + "; put it there, set --data to another folder, " +
          remedy);
    }
  }
  if (folders.empty()) {
    // Throws ConfigError, which names the variables to set.
    cache_directory();
  }
  throw DataError(
      "[data] " + std::string(set.title) + " is not in " + join(folders, " or ") +
      "; put its files there, set --data to their folder, " + remedy);
}

DatasetSplits named(
    DatasetSplits splits, const std::string& name, const std::string& folder) {
  if (splits.train.num_classes > kMostClasses) {
    throw DataError(
        "[data] '" + folder + "' has a label of " +
        std::to_string(splits.train.num_classes - 1) + ", expected 0 to 9 for " + name +
        "; fetch its label files again");
  }
  splits.train.name = splits.test.name = name;
  return splits;
}

DatasetSplits load_files(const FileSet& set) {
  const std::string folder = find_dataset(set.name);
  if (folder.empty()) {
    fail_missing(set);
  }
  DatasetSplits splits = named(set.load(folder), set.name, folder);
  if (!set.class_names.empty()) {
    auto names = set.class_names;
    names.resize(static_cast<size_t>(splits.train.num_classes));
    splits.train.class_names = splits.test.class_names = names;
  }
  return splits;
}

DatasetSplits load_digits(const Deadline& deadline) {
  const std::string folder = cache_directory() + "/" + kDigitsVersion;
  const std::string last = folder + "/" + kLastDigitsFile;
  if (!file_exists(last)) {
    const FileLock lock(cache_directory() + "/digits.lock", deadline);
    if (!file_exists(last)) {
      log_info("drawing 70,000 digits into " + folder + " (only at the first use)");
      write_digits(folder, kDigitsTrain, kDigitsTest);
    }
  }
  return named(load_idx_folder(folder), "digits", folder);
}

}  // namespace

const std::vector<DatasetEntry>& dataset_table() {
  static const auto table = [] {
    std::vector<DatasetEntry> rows = {
        {"digits", "60,000 + 10,000 digits drawn by tandem, offline", &load_digits}};
    for (const auto& set : file_sets()) {
      rows.push_back(
          {set.name, set.help, [&set](const Deadline&) { return load_files(set); }});
    }
    return rows;
  }();
  return table;
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
  const auto* set = find_set(name);
  const auto folders =
      set == nullptr ? std::vector<std::string>() : dataset_folders(name);
  const auto found = std::find_if(
      folders.begin(), folders.end(),
      [&](const std::string& folder) { return missing_file(folder, *set).empty(); });
  return found == folders.end() ? "" : *found;
}

bool dataset_is_missing(const std::string& name) {
  return find_set(name) != nullptr && find_dataset(name).empty();
}

}  // namespace tandem
