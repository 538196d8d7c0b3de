#include "tandem/data/data_parts.h"

#include <fmt/core.h>

#include "tandem/base/error.h"

namespace tandem {

namespace {

void add(DataParts& parts, const std::string& split, const Dataset& data) {
  const DataHashes hashes = hashes_of(data);
  parts.emplace_back(
      split + " images",
      fmt::format(
          "{}x{}x{} {}", data.channels, data.height, data.width, hashes.images));
  parts.emplace_back(
      split + " labels", fmt::format("{} classes {}", data.num_classes, hashes.labels));
}

std::string line_of(const std::pair<std::string, std::string>& part) {
  return part.first + ": " + part.second + "\n";
}

}  // namespace

DataParts parts_of(const DatasetSplits& data) {
  DataParts parts;
  add(parts, "training", data.train);
  add(parts, "test", data.test);
  return parts;
}

std::string to_text(const DataParts& parts) {
  std::string text;
  for (const auto& part : parts) {
    text += line_of(part);
  }
  return text;
}

std::string other_parts(const std::string& text, const DataParts& parts) {
  std::vector<std::string> others;
  for (const auto& part : parts) {
    if (text.find(line_of(part)) == std::string::npos) {
      others.push_back(part.first);
    }
  }
  return join(others);
}

}  // namespace tandem
