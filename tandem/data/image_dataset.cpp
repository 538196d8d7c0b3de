#include "tandem/data/image_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/data/class_names.h"
#include "tandem/data/images/image_folder.h"

namespace tandem {

namespace {

constexpr int64_t kMostSide = 16'384;

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

ImageSize parse_size(const std::string& text) {
  if (text.empty()) {
    return {};
  }
  const auto sides = parse_sizes(text, 'x');
  const bool fits = sides && !sides->empty() && sides->size() <= 2 &&
                    *std::max_element(sides->begin(), sides->end()) <= kMostSide;
  if (!fits) {
    throw ConfigError(fmt::format(
        "[data] image_size is '{}', expected a size such as 224, or HEIGHTxWIDTH such "
        "as 160x240, each from 1 to {}; change --image-size",
        text, kMostSide));
  }
  return {sides->front(), sides->back()};
}

Dataset dataset_of(ImageFolder images, const DataRequest& request) {
  Dataset data;
  data.name = request.options.source;
  data.is_loadable = true;
  data.size = images.size;
  data.inputs = {
      ElementType::uint8,
      {images.channels, images.height, images.width},
      std::move(images.pixels),
      images.is_mapped};
  data.targets = {ElementType::int64, {}, std::move(images.labels)};
  data.class_names = std::move(images.class_names);
  if (request.keeps_files) {
    data.files =
        std::make_shared<const std::vector<std::string>>(std::move(images.files));
  }
  return data;
}

Dataset load_folder(
    const std::string& folder, const DataRequest& request, int64_t channels,
    const Deadline& deadline) {
  return dataset_of(
      read_image_folder(
          folder, parse_size(request.options.image_size), static_cast<int>(channels),
          deadline),
      request);
}

void check_same_size(const Dataset& train, const Dataset& test) {
  if (train.inputs.shape != test.inputs.shape) {
    throw DataError(fmt::format(
        "[data] '{}': training images are {}, test images {}, expected equal sizes; "
        "set --image-size",
        train.name, shape_text(train.inputs.shape), shape_text(test.inputs.shape)));
  }
}

}  // namespace

bool has_image_folders(const std::string& path) {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(path, error);
       !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    if (entry->is_directory(error)) {
      return true;
    }
  }
  return false;
}

DatasetSplits load_image_folders(const DataRequest& request, const Deadline& deadline) {
  const std::string& path = request.options.source;
  DatasetSplits splits;
  if (!is_folder(path + "/train")) {
    splits.train = load_folder(path, request, request.channels, deadline);
    return splits;
  }
  splits.train = load_folder(path + "/train", request, request.channels, deadline);
  const std::string test = path + (is_folder(path + "/test") ? "/test" : "/val");
  if (is_folder(test)) {
    const int64_t channels = splits.train.inputs.shape[0];
    splits.test = load_folder(test, request, channels, deadline);
    renumber_classes(splits.test, splits.train.class_names, "the training part");
    check_same_size(splits.train, splits.test);
  }
  return splits;
}

Dataset load_image_inputs(const DataRequest& request, const Deadline& deadline) {
  Dataset data = dataset_of(
      read_loose_images(
          request.options.source, parse_size(request.options.image_size),
          static_cast<int>(request.channels), deadline),
      request);
  data.is_loadable = false;
  data.targets.bytes = {};
  return data;
}

}  // namespace tandem
