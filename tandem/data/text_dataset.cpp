#include "tandem/data/text_dataset.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/data/part_files.h"

namespace tandem {

namespace {

constexpr const char* kTextEnding = ".txt";
constexpr int64_t kNumBytes = 256;

Dataset load_file(const std::string& path, const DataRequest& request) {
  const int64_t block = request.options.block_size;
  const Bytes bytes = map_file(path);
  const auto size = static_cast<int64_t>(bytes.size());
  if (size <= block) {
    throw DataError(fmt::format(
        "[data] '{}' has {} bytes, expected more than {} for a sample; use a longer "
        "text, or lower --block-size",
        path, size, block));
  }
  Dataset data;
  data.name = request.options.source;
  data.is_loadable = true;
  data.is_sequence = data.tokens = true;
  data.size = (size - 1) / block;
  data.num_classes = kNumBytes;
  data.inputs = {ElementType::uint8, {block}, bytes, true};
  data.targets = {
      ElementType::uint8, {block}, part_of(bytes, 1, bytes.size() - 1), true};
  return data;
}

}  // namespace

bool has_text(const std::string& path) {
  return has_part_files(path, kTextEnding);
}

DatasetSplits load_text(const DataRequest& request, const Deadline&) {
  const PartFiles files = part_files(request.options.source, kTextEnding);
  DatasetSplits splits;
  splits.train = load_file(files.train, request);
  if (!files.validation.empty()) {
    splits.validation = load_file(files.validation, request);
  }
  if (!files.test.empty()) {
    splits.test = load_file(files.test, request);
  }
  return splits;
}

}  // namespace tandem
