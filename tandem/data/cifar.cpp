#include "tandem/data/cifar.h"

#include <fmt/core.h>

#include <string_view>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kCifarSide = 32;
constexpr int64_t kCifarClasses = 10;
constexpr size_t kImageBytes = kChannels * kCifarSide * kCifarSide;
constexpr size_t kRecordBytes = 1 + kImageBytes;
// Largest size of a file. The files of CIFAR-10 have 30,730,000 bytes.
constexpr size_t kMostFileBytes = size_t{1} << 30;

struct Records {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
};

void append_file(Records& samples, const std::string& path) {
  const std::string bytes = read_file(path, kMostFileBytes);
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    throw DataError(fmt::format(
        "[data] '{}' has {} bytes, expected a multiple of {}, the bytes of a record; "
        "fetch it again",
        path, bytes.size(), kRecordBytes));
  }
  for (size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    const auto label = static_cast<uint8_t>(bytes[at]);
    if (label >= kCifarClasses) {
      throw DataError(fmt::format(
          "[data] '{}' has a label of {}, expected 0 to 9; fetch it again", path,
          label));
    }
    samples.labels.push_back(label);
    const auto image = std::string_view(bytes).substr(at + 1, kImageBytes);
    samples.pixels.insert(samples.pixels.end(), image.begin(), image.end());
  }
}

Dataset to_split(Records samples, const std::string& folder) {
  Dataset split;
  split.name = folder;
  split.is_loadable = true;
  split.size = static_cast<int64_t>(samples.labels.size());
  split.num_classes = kCifarClasses;
  split.class_names = {"airplane", "automobile", "bird",  "cat",  "deer",
                       "dog",      "frog",       "horse", "ship", "truck"};
  split.inputs = {
      ElementType::uint8,
      {kChannels, kCifarSide, kCifarSide},
      std::move(samples.pixels)};
  split.targets.bytes = std::move(samples.labels);
  return split;
}

}  // namespace

const std::vector<std::string>& cifar_files() {
  static const std::vector<std::string> files = {"data_batch_1.bin", "data_batch_2.bin",
                                                 "data_batch_3.bin", "data_batch_4.bin",
                                                 "data_batch_5.bin", "test_batch.bin"};
  return files;
}

DatasetSplits load_cifar_folder(const std::string& folder) {
  const auto& files = cifar_files();
  Records train;
  Records test;
  for (const auto& file : files) {
    append_file(file == files.back() ? test : train, folder + "/" + file);
  }
  return {to_split(std::move(train), folder), to_split(std::move(test), folder)};
}

}  // namespace tandem
