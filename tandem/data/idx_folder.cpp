#include "tandem/data/idx_folder.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
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
  const auto image_path =
      color_path.empty() ? find_idx(folder, prefix + "-images-idx3-ubyte") : color_path;
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

}  // namespace tandem
