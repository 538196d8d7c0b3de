#include "tandem/data/image_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/data/dataset.h"
#include "tandem/data/images/image_folder.h"
#include "tandem/data/part_files.h"

namespace tandem {

namespace {

constexpr int64_t kMostSide = 16'384;

ImageSize parse_size(const std::string& text) {
  if (text.empty()) {
    return {};
  }
  const auto sides = parse_sizes(text, 'x');
  const bool fits = sides && !sides->empty() && sides->size() <= 2 &&
                    *std::max_element(sides->begin(), sides->end()) <= kMostSide &&
                    sides->front() * sides->back() <= kMostPixels;
  if (!fits) {
    throw ConfigError(fmt::format(
        "[data] image_size is '{}', expected a size such as 224, or HEIGHTxWIDTH such "
        "as 160x240, each from 1 to {}, and at most {} million pixels; change "
        "--image-size",
        text, kMostSide, kMostPixels / 1'000'000));
  }
  return {sides->front(), sides->back()};
}

// Returns the size and the channels that a request sets; 0: as in the files.
ImageShape wanted_shape(const DataRequest& request, int64_t channels) {
  if (channels != 0 && channels != 1 && channels != 3) {
    throw ConfigError(
        fmt::format("[data] channels is {}, expected 0, 1 or 3; change it", channels));
  }
  return {parse_size(request.options.image_size), channels};
}

Dataset dataset_of(ImageFolder folder, const DataRequest& request) {
  auto& [class_names, files] = folder.listing;
  DecodedImages& images = folder.images;
  const ImageShape& shape = images.shape;
  std::vector<int64_t> labels;
  std::vector<std::string> paths;
  for (auto& file : files) {
    labels.push_back(file.label);
    paths.push_back(std::move(file.path));
  }
  Dataset data;
  data.name = request.options.source;
  data.is_loadable = true;
  data.size = static_cast<int64_t>(files.size());
  data.inputs = {
      ElementType::uint8,
      {shape.channels, shape.size.height, shape.size.width},
      std::move(images.pixels),
      images.is_mapped};
  data.targets = {ElementType::int64, {}, std::move(labels)};
  data.class_names = std::move(class_names);
  if (request.keeps_files) {
    data.files = std::make_shared<const std::vector<std::string>>(std::move(paths));
  }
  return data;
}

Dataset load_folder(
    const std::string& folder, const DataRequest& request, int64_t channels,
    const Deadline& deadline) {
  return dataset_of(
      read_image_folder(
          folder, wanted_shape(request, channels), deadline, request.checks_cache),
      request);
}

// Loads a part with the classes and the size of the training part.
Dataset load_other_part(
    const std::string& folder, const DataRequest& request, const Dataset& train,
    const Deadline& deadline) {
  Dataset part = load_folder(folder, request, train.inputs.shape[0], deadline);
  renumber_classes(part, train.class_names, "the training part");
  if (part.inputs.shape != train.inputs.shape) {
    throw DataError(fmt::format(
        "[data] images in '{}' are {}, training images {}, expected equal sizes; set "
        "--image-size",
        folder, shape_text(part.inputs.shape), shape_text(train.inputs.shape)));
  }
  return part;
}

void warn_of_ignored_folders(
    const std::string& path, const std::vector<std::string>& folders) {
  if (!folders.empty()) {
    log_warning(fmt::format(
        "[data] folder{} {} in '{}' {} ignored, expected train, val and test; rename "
        "or remove {}",
        folders.size() == 1 ? "" : "s", join(folders), path,
        folders.size() == 1 ? "is" : "are", folders.size() == 1 ? "it" : "them"));
  }
}

// Returns the folders of the parts of a data set. Only `train` is set if the path has
// class folders.
PartFiles parts_of_images(const std::string& path, const DataRequest& request) {
  std::vector<std::string> others;
  const PartFiles parts = part_folders(path, others);
  if (others.empty() && parts.train.empty() && request.for_training) {
    throw DataError(fmt::format(
        "[data] '{}' has the folder {}, but no folder train, expected train/ with a "
        "folder per class; rename a folder, or set --data to a folder of class folders",
        path, join(folders_in(path), " and ")));
  }
  // A class can have the name "train". Its folder then contains images, not folders.
  const bool is_class =
      parts.train.empty() || (!others.empty() && folders_in(parts.train).empty());
  if (is_class) {
    return {path, "", ""};
  }
  if (request.logs_parts) {
    warn_of_ignored_folders(path, others);
  }
  return parts;
}

// Throws DataError if a folder has a single folder, which contains the class folders.
void check_class_folders(const std::string& path) {
  const auto classes = folders_in(path);
  if (classes.size() != 1) {
    return;
  }
  const std::string only = path + "/" + classes.front();
  const auto inner = folders_in(only);
  if (!inner.empty() && inner.size() == list_directory(only).size()) {
    throw DataError(fmt::format(
        "[data] '{}' has only the folder '{}', which contains folders such as '{}', "
        "expected a folder of images per class; set --data to {}, or move its folders "
        "up",
        path, classes.front(), inner.front(), only));
  }
}

}  // namespace

bool has_image_folders(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) && !folders_in(path).empty();
}

DatasetSplits load_image_folders(const DataRequest& request, const Deadline& deadline) {
  const PartFiles parts = parts_of_images(request.options.source, request);
  if (request.for_training) {
    check_class_folders(parts.train);
  }
  DatasetSplits splits;
  splits.train = load_folder(parts.train, request, request.channels, deadline);
  if (!parts.validation.empty()) {
    splits.validation =
        load_other_part(parts.validation, request, splits.train, deadline);
  }
  if (!parts.test.empty()) {
    splits.test = load_other_part(parts.test, request, splits.train, deadline);
  }
  return splits;
}

Dataset load_image_inputs(const DataRequest& request, const Deadline& deadline) {
  Dataset data = dataset_of(
      read_loose_images(
          request.options.source, wanted_shape(request, request.channels), deadline),
      request);
  data.is_loadable = false;
  data.targets.bytes = {};
  return data;
}

}  // namespace tandem
