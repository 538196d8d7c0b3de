#include "tandem/data/named_datasets.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/fingerprint.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/cifar.h"
#include "tandem/data/digits/digits.h"
#include "tandem/data/idx.h"
#include "tandem/data/write_digits.h"

namespace tandem {

namespace {

constexpr int64_t kDigitsTrain = 60'000;
constexpr int64_t kDigitsTest = 10'000;
// Number of classes of every named data set.
constexpr int64_t kMostClasses = 10;
// Folder of the digits in the cache, and the fingerprints of their bytes. If
// draw_digits() changes, change them.
constexpr const char* kDigitsVersion = "digits-1";
struct PartChecksums {
  uint64_t images;
  uint64_t labels;
};
constexpr PartChecksums kTrainChecksums = {0x3605d38a6dd5914d, 0xb3506119440e790e};
constexpr PartChecksums kTestChecksums = {0xf8c74b739dbb541b, 0x2dc08827209d412b};

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

std::string digits_cache() {
  return cache_directory() + "/" + kDigitsVersion;
}

bool is_complete(const std::string& folder) {
  return std::all_of(kIdxFiles.begin(), kIdxFiles.end(), [&](const auto& file) {
    return file_exists(folder + "/" + file);
  });
}

bool has_checksums(const Dataset& part, const PartChecksums& wanted) {
  const auto of = [](const Bytes& bytes) {
    return fingerprint(bytes.data(), bytes.size());
  };
  return of(part.inputs.bytes) == wanted.images &&
         of(part.targets.bytes) == wanted.labels;
}

// Returns the digits in a folder of the cache. Returns nullopt if files are missing or
// damaged.
std::optional<DatasetSplits> digits_in(const std::string& folder) {
  if (!is_complete(folder)) {
    return std::nullopt;
  }
  try {
    auto splits = load_idx_folder(folder);
    if (has_checksums(splits.train, kTrainChecksums) &&
        has_checksums(splits.test, kTestChecksums)) {
      return splits;
    }
  } catch (const DataError& error) {
    log_debug(error.what());
  }
  return std::nullopt;
}

// Returns the digits of the cache. Draws them at the first use, and if they are
// damaged.
DatasetSplits cached_digits(const Deadline& deadline) {
  const std::string folder = digits_cache();
  auto splits = digits_in(folder);
  if (!splits) {
    const FileLock lock(cache_directory() + "/digits.lock", deadline);
    splits = digits_in(folder);
    if (!splits) {
      log_info(fmt::format(
          "drawing 70,000 digits into {} ({})", folder,
          is_complete(folder) ? "again, because a file is damaged"
                              : "only at the first use"));
      write_digits(folder, kDigitsTrain, kDigitsTest);
      splits = load_idx_folder(folder);
    }
  }
  return std::move(*splits);
}

Dataset digits_in_memory(int64_t count, uint64_t seed) {
  DigitImages digits = draw_digits(count, seed);
  Dataset part;
  part.is_loadable = true;
  part.size = count;
  part.inputs = {
      ElementType::uint8, {1, kDigitSide, kDigitSide}, std::move(digits.pixels)};
  part.targets.bytes = std::move(digits.labels);
  part.num_classes = kMostClasses;
  for (int64_t i = 0; i < part.num_classes; ++i) {
    part.class_names.push_back(std::to_string(i));
  }
  return part;
}

// Returns the digits of the cache. If the cache cannot be used, draws them in memory.
DatasetSplits load_digits(const Deadline& deadline) {
  std::string reason =
      "XDG_CACHE_HOME and HOME are not set, expected one of them for the cache";
  if (has_cache_directory()) {
    try {
      return cached_digits(deadline);
    } catch (const DataError& error) {
      if (deadline.passed()) {
        throw;
      }
      reason = error.what();
    }
  }
  log_warning(
      "[data] the digits are drawn again at the next start, because they cannot be "
      "cached: " +
      reason + "; set XDG_CACHE_HOME to your own folder");
  return {
      digits_in_memory(kDigitsTrain, kTrainDigitsSeed),
      digits_in_memory(kDigitsTest, kTestDigitsSeed)};
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
  const bool is_drawn = set.files.empty();
  const std::string folder = is_drawn ? "" : find_dataset(set.name);
  if (!is_drawn && folder.empty()) {
    fail_missing(set);
  }
  DatasetSplits splits = is_drawn ? load_digits(deadline) : set.load(folder);
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
