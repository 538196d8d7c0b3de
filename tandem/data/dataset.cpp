#include "tandem/data/dataset.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/sha256.h"
#include "tandem/data/cifar.h"
#include "tandem/data/digits/digits.h"
#include "tandem/data/idx.h"

namespace tandem {

namespace {

constexpr const char* kCustom = "custom:";

std::string what_data_takes() {
  std::vector<std::string> names;
  for (const auto& entry : dataset_table()) {
    names.emplace_back(entry.name);
  }
  return "set --data to " + join(names) + ", or a folder of MNIST's four IDX files";
}

std::string find_idx(const std::string& folder, const std::string& stem) {
  for (const char* ending : {".gz", ""}) {
    const std::string path = folder + "/" + stem + ending;
    if (file_exists(path)) {
      return path;
    }
  }
  throw DataError(
      "[data] '" + folder + "' has no " + stem + " or " + stem + ".gz; " +
      what_data_takes());
}

Dataset load_split(const std::string& folder, const std::string& prefix) {
  const auto image_path = find_idx(folder, prefix + "-images-idx3-ubyte");
  const auto label_path = find_idx(folder, prefix + "-labels-idx1-ubyte");
  auto images = read_idx(image_path, 3);
  auto labels = read_idx(label_path, 1);
  if (images.dims[0] != labels.dims[0]) {
    throw DataError(
        "[data] '" + image_path + "' has " + std::to_string(images.dims[0]) +
        " images, but '" + label_path + "' has " + std::to_string(labels.dims[0]) +
        " labels; fetch both again");
  }
  Dataset split;
  split.name = folder;
  split.is_loadable = true;
  split.size = images.dims[0];
  split.height = images.dims[1];
  split.width = images.dims[2];
  split.num_classes = 1 + *std::max_element(labels.values.begin(), labels.values.end());
  split.pixels = std::move(images.values);
  split.labels = std::move(labels.values);
  return split;
}

IdxArray image_array(const DigitImages& images) {
  const auto count = static_cast<int64_t>(images.labels.size());
  return {{count, kDigitSide, kDigitSide}, images.pixels};
}

IdxArray label_array(const DigitImages& images) {
  return {{static_cast<int64_t>(images.labels.size())}, images.labels};
}

void move_file(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) {
    throw DataError(
        "[data] cannot write '" + to + "': " + error.message() +
        "; choose another folder");
  }
}

void check_is_folder(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    throw DataError("[data] '" + path + "' is not a folder; " + what_data_takes());
  }
  list_directory(path);  // throws if it cannot be read
}

// Throws DataError if a test label is greater than every training label. Otherwise a
// damaged byte in a label file would look like a class without training samples.
void check_labels(
    const std::string& folder, const Dataset& train, const Dataset& test) {
  if (test.num_classes > train.num_classes) {
    throw DataError(
        "[data] '" + folder + "': a test label is " +
        std::to_string(test.num_classes - 1) + ", expected at most " +
        std::to_string(train.num_classes - 1) +
        " as in the training labels; fetch the label files again");
  }
}

// Warns if less than half of the classes occur. Such labels are valid, but the file is
// probably wrong.
void warn_of_gaps(const std::string& folder, const Dataset& train) {
  const std::set<uint8_t> found(train.labels.begin(), train.labels.end());
  const auto num_found = static_cast<int64_t>(found.size());
  if (2 * num_found < train.num_classes && thread_rank() == 0) {
    log_warning(
        "'" + folder + "': training labels go up to " +
        std::to_string(train.num_classes - 1) + ", but only " +
        std::to_string(num_found) +
        " of them occur; check that the label file is intact");
  }
}

}  // namespace

DatasetSplits load_dataset(
    const std::string& name_or_folder, int64_t limit, const Deadline& deadline) {
  if (name_or_folder.rfind(kCustom, 0) == 0) {
    throw ConfigError(
        "[data] data is the custom data set '" +
        name_or_folder.substr(std::string(kCustom).size()) +
        "' of another program, expected a name or a folder; resume or evaluate the run "
        "in that program (evaluate_checkpoint()), or change --data");
  }
  std::vector<std::string> names;
  DatasetSplits splits;
  bool found = false;
  for (const auto& entry : dataset_table()) {
    names.emplace_back(entry.name);
    if (name_or_folder == entry.name) {
      splits = entry.load(deadline);
      found = true;
    }
  }
  if (!found && !file_exists(name_or_folder)) {
    throw ConfigError(
        "[data] data is '" + name_or_folder + "', expected a folder or one of " +
        join(names) + did_you_mean(name_or_folder, names));
  }
  if (!found) {
    check_is_folder(name_or_folder);
    splits = file_exists(name_or_folder + "/" + cifar_files().front())
                 ? load_cifar_folder(name_or_folder)
                 : load_idx_folder(name_or_folder);
    warn_of_gaps(name_or_folder, splits.train);
  }
  splits.train = first_samples(std::move(splits.train), limit);
  splits.test = first_samples(std::move(splits.test), limit);
  return splits;
}

Dataset load_images(const std::string& path) {
  auto images = read_idx(path, 3);
  Dataset data;
  data.name = path;
  data.size = images.dims[0];
  data.height = images.dims[1];
  data.width = images.dims[2];
  data.pixels = std::move(images.values);
  return data;
}

Dataset first_samples(Dataset data, int64_t limit) {
  if (limit > 0 && limit < data.size) {
    TANDEM_CHECK(data.num_shares == 1, "a limit comes before samples are shared");
    data.size = limit;
    data.hashes = {};
  }
  return data;
}

std::string recorded_name(const Dataset& data) {
  return data.is_loadable ? data.name : kCustom + data.name;
}

DataHashes hashes_of(const Dataset& data) {
  if (!data.hashes.images.empty()) {
    return data.hashes;
  }
  TANDEM_CHECK(data.num_shares == 1, "a share does not have the hash of the whole");
  // Hashes only the first `size` samples: a limit lowers `size`, but `pixels` and
  // `labels` keep all bytes.
  return {
      sha256_hex(
          data.pixels.data(), static_cast<size_t>(data.size * data.image_bytes())),
      sha256_hex(data.labels.data(), static_cast<size_t>(data.size))};
}

void check_samples(const Dataset& data, int64_t num_classes) {
  const auto held = static_cast<size_t>(data.size / data.num_shares);
  const auto check_bytes = [&](const char* what, const Bytes& bytes, size_t wanted) {
    if (bytes.size() < wanted) {
      throw ConfigError(
          "[data] " + std::string(what) + " of '" + data.name + "' have " +
          std::to_string(bytes.size()) + " bytes, expected " + std::to_string(wanted) +
          " for " + std::to_string(held) + " samples; change Dataset::size or " + what);
    }
  };
  check_bytes("pixels", data.pixels, held * static_cast<size_t>(data.image_bytes()));
  check_bytes("labels", data.labels, held);
  for (size_t i = 0; i < held; ++i) {
    if (data.labels[i] >= num_classes) {
      throw ConfigError(
          "[data] label " + std::to_string(i) + " of '" + data.name + "' is " +
          std::to_string(data.labels[i]) + ", expected less than " +
          std::to_string(num_classes) +
          ", the number of classes; change the label or Dataset::num_classes");
    }
  }
}

DatasetSplits load_idx_folder(const std::string& folder) {
  DatasetSplits splits{load_split(folder, "train"), load_split(folder, "t10k")};
  auto& [train, test] = splits;
  if (train.height != test.height || train.width != test.width) {
    throw DataError(
        "[data] '" + folder + "': training images are " + std::to_string(train.height) +
        "x" + std::to_string(train.width) + ", test images " +
        std::to_string(test.height) + "x" + std::to_string(test.width) +
        ", expected equal sizes; fetch the image files again");
  }
  check_labels(folder, train, test);
  test.num_classes = train.num_classes;
  for (int64_t i = 0; i < train.num_classes; ++i) {
    train.class_names.push_back(std::to_string(i));
  }
  test.class_names = train.class_names;
  return splits;
}

void write_digits(const std::string& folder, int64_t num_train, int64_t num_test) {
  const auto train = draw_digits(num_train, 2);
  const auto test = draw_digits(num_test, 3);
  const bool is_new = !file_exists(folder);
  make_directories(folder);
  // Writes all four files to a temporary folder first, so that no file appears if
  // writing fails.
  const std::string part = folder + "/part-" + std::to_string(getpid()) + "/";
  try {
    make_directories(part);
    const std::pair<std::string, IdxArray> files[] = {
        {"train-images-idx3-ubyte", image_array(train)},
        {"train-labels-idx1-ubyte", label_array(train)},
        {"t10k-images-idx3-ubyte", image_array(test)},
        {"t10k-labels-idx1-ubyte", label_array(test)}};
    for (const auto& [name, array] : files) {
      write_idx(part + name, array);
    }
    for (const auto& file : files) {
      move_file(part + file.first, folder + "/" + file.first);
    }
  } catch (...) {
    remove_all(is_new ? folder : part);
    throw;
  }
  remove_all(part);
}

}  // namespace tandem
