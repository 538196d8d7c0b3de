#include "tandem/data/idx_folder.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/data/digits/digits.h"
#include "tandem/data/idx.h"

namespace tandem {

namespace {

// Returns the path of a file, gzip or plain; "" if there is none.
std::string idx_file(const std::string& folder, const std::string& stem) {
  for (const char* ending : {".gz", ""}) {
    const std::string path = folder + "/" + stem + ending;
    if (file_exists(path)) {
      return path;
    }
  }
  return "";
}

std::string find_idx(const std::string& folder, const std::string& stem) {
  if (const auto found = idx_file(folder, stem); !found.empty()) {
    return found;
  }
  throw DataError(
      "[data] '" + folder + "' has no " + stem + " or " + stem +
      ".gz; put it there, or set --data to another folder");
}

Samples samples_of(IdxArray images) {
  std::vector<int64_t> shape(images.dims.begin() + 1, images.dims.end());
  if (shape.size() == 2) {
    shape.insert(shape.begin(), 1);
  }
  return {ElementType::uint8, shape, std::move(images.values)};
}

Dataset load_split(const std::string& folder, const std::string& prefix) {
  const auto color_path = idx_file(folder, prefix + "-images-idx4-ubyte");
  const auto image_path = color_path.empty()
                              ? find_idx(folder, prefix + "-images-idx3-ubyte")
                              : color_path;
  const auto label_path = find_idx(folder, prefix + "-labels-idx1-ubyte");
  auto images = read_idx(image_path, color_path.empty() ? 3 : 4);
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
  split.num_classes = 1 + *std::max_element(labels.values.begin(), labels.values.end());
  split.inputs = samples_of(std::move(images));
  split.targets.bytes = std::move(labels.values);
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
  const std::set<uint8_t> found(train.targets.bytes.begin(), train.targets.bytes.end());
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

Dataset load_images(const std::string& path) {
  auto images = read_idx(path, 3);
  Dataset data;
  data.name = path;
  data.size = images.dims[0];
  data.inputs = samples_of(std::move(images));
  return data;
}

DatasetSplits load_idx_folder(const std::string& folder) {
  DatasetSplits splits{load_split(folder, "train"), load_split(folder, "t10k")};
  Dataset& train = splits.train;
  Dataset& test = splits.test;
  if (train.inputs.shape != test.inputs.shape) {
    throw DataError(
        "[data] '" + folder + "': training images are " +
        shape_text(train.inputs.shape) + ", test images " +
        shape_text(test.inputs.shape) +
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
