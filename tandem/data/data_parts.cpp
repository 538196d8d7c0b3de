#include "tandem/data/data_parts.h"

#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Returns a prefix for all types except uint8, such as "float32 ".
std::string type_text(const Samples& samples) {
  return samples.type == ElementType::uint8 ? ""
                                            : std::string(name_of(samples.type)) + " ";
}

// Numbers of uint8 have a prefix, because older versions divided them by 255.
std::string input_type_text(const Dataset& data) {
  return data.has_byte_numbers() ? "uint8 numbers " : type_text(data.inputs);
}

void add(DataParts& parts, const std::string& split, const Dataset& data) {
  const DataHashes hashes = hashes_of(data);
  parts.emplace_back(
      split + (data.has_images() ? " images" : " inputs"),
      fmt::format(
          "{}{} {}", input_type_text(data), shape_text(data.inputs.shape),
          hashes.inputs));
  const bool is_label = data.has_classes() && data.targets.shape.empty();
  parts.emplace_back(
      split + (is_label ? " labels" : " targets"),
      is_label ? fmt::format("{} classes {}", data.num_classes, hashes.targets)
               : fmt::format(
                     "{}{} {}", type_text(data.targets), shape_text(data.targets.shape),
                     hashes.targets));
}

std::string line_of(const std::pair<std::string, std::string>& part) {
  return part.first + ": " + part.second + "\n";
}

}  // namespace

DataParts parts_of(const std::string& name, const Dataset& part) {
  DataParts parts;
  add(parts, name, part);
  return parts;
}

DataParts parts_of(const DatasetSplits& data) {
  DataParts parts;
  add(parts, "training", data.train);
  add(parts, "test", data.test);
  if (data.validation.size > 0) {
    add(parts, "validation", data.validation);
  }
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

std::string missing_parts(const std::string& text, const DataParts& parts) {
  std::vector<std::string> missing;
  for (const auto& line : split(text, '\n')) {
    const std::string name = line.substr(0, line.find(": "));
    const auto has_name = [&](const auto& part) { return part.first == name; };
    if (!name.empty() && std::none_of(parts.begin(), parts.end(), has_name)) {
      missing.push_back(name);
    }
  }
  return join(missing);
}

std::string hash_in(const std::string& text, const std::string& part) {
  constexpr size_t kDigits = 12;
  for (const auto& line : split(text, '\n')) {
    if (line.rfind(part + ": ", 0) == 0) {
      return line.substr(line.rfind(' ') + 1, kDigits);
    }
  }
  return "";
}

}  // namespace tandem
