#include "tandem/data/part_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

struct PartName {
  const char* name;
  std::string PartFiles::*part;
};

constexpr PartName kPartNames[] = {
    {"train", &PartFiles::train},           {"training", &PartFiles::train},
    {"val", &PartFiles::validation},        {"valid", &PartFiles::validation},
    {"validation", &PartFiles::validation}, {"test", &PartFiles::test},
    {"testing", &PartFiles::test}};

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// Returns the part with this name, or null.
const PartName* find_part(const std::string& name) {
  const std::string lower = lower_case(name);
  const auto* found = std::find_if(
      std::begin(kPartNames), std::end(kPartNames),
      [&](const PartName& row) { return lower == row.name; });
  return found == std::end(kPartNames) ? nullptr : found;
}

void add(
    PartFiles& parts, const PartName& row, const std::string& folder,
    const std::string& name) {
  std::string& path = parts.*row.part;
  if (!path.empty()) {
    throw DataError(fmt::format(
        "[data] '{}' and '{}/{}' are the same part, expected one of them; rename or "
        "remove the other",
        path, folder, name));
  }
  path = folder + "/" + name;
}

PartFiles with_test_part(PartFiles parts) {
  if (parts.test.empty()) {
    std::swap(parts.test, parts.validation);
  }
  return parts;
}

}  // namespace

bool has_part_files(const std::string& path, const std::string& ending) {
  return ends_with(path, ending) ||
         (is_folder(path) && !part_files(path, ending).train.empty());
}

PartFiles part_files(const std::string& path, const std::string& ending) {
  if (ends_with(path, ending)) {
    return {path, "", ""};
  }
  PartFiles parts;
  for (const auto& name : list_directory(path)) {
    const auto* row = ends_with(name, ending)
                          ? find_part(name.substr(0, name.size() - ending.size()))
                          : nullptr;
    if (row != nullptr) {
      add(parts, *row, path, name);
    }
  }
  return with_test_part(parts);
}

PartFiles part_folders(const std::string& path, std::vector<std::string>& others) {
  PartFiles parts;
  for (const auto& name : folders_in(path)) {
    if (const auto* row = find_part(name)) {
      add(parts, *row, path, name);
    } else {
      others.push_back(name);
    }
  }
  return with_test_part(parts);
}

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> folders;
  for (const auto& name : list_directory(path)) {
    if (name.front() != '.' && is_folder(path + "/" + name)) {
      folders.push_back(name);
    }
  }
  return folders;
}

}  // namespace tandem
