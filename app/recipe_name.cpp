#include "app/recipe_name.h"

#include <filesystem>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem::app {

namespace {

namespace fs = std::filesystem;

// "" where this program is not an installed one. It is in bin, the worker one folder
// deeper, in libexec/tandem.
std::string recipes_folder() {
  const fs::path own = fs::path(executable_path()).parent_path();
  for (const auto& prefix : {own.parent_path(), own.parent_path().parent_path()}) {
    const fs::path folder = prefix / "share/tandem/recipes";
    if (fs::is_directory(folder)) {
      return folder.string();
    }
  }
  return "";
}

std::vector<std::string> installed_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(folder)) {
    names.push_back(file.path().stem().string());
  }
  return names;
}

}  // namespace

std::string recipe_path(const std::string& text) {
  // A run's directory may have its recipe's name.
  std::error_code ignored;
  const bool is_file = fs::exists(text, ignored) && !fs::is_directory(text, ignored);
  const std::string folder = recipes_folder();
  if (is_file || folder.empty() || text.empty() ||
      text.find('/') != std::string::npos) {
    return text;
  }
  for (const char* ending : {"", ".toml"}) {
    if (const auto path = folder + "/" + text + ending; file_exists(path)) {
      return path;
    }
  }
  throw DataError(
      "[recipe] there is no file '" + text + "', nor a recipe of that name" +
      did_you_mean(text, installed_names(folder)) + "; those installed are in " +
      folder);
}

}  // namespace tandem::app
