#include "app/recipe_name.h"

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/config/fields.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

namespace {

namespace fs = std::filesystem;

// A network file is not a recipe.
void check_is_no_network(const std::string& text) {
  if (find_field("model", "recipe").is_path(text)) {
    throw ConfigError(
        "[recipe] recipe is '" + text +
        "', which is the name of a network; use --model " + text);
  }
}

[[noreturn]] void fail_unknown(const std::string& text) {
  const std::string folder = recipes_folder();
  const std::string message =
      "[recipe] recipe is '" + text + "', expected a file or the name of a recipe";
  if (folder.empty()) {
    throw ConfigError(message + "; write the path of a recipe");
  }
  const auto names = recipes_in(folder);
  throw ConfigError(
      message + did_you_mean(fs::path(text).stem().string(), names) +
      "; choose one of " + join(names) + " (in " + folder + ")");
}

}  // namespace

std::string recipes_folder() {
  const fs::path own = fs::path(executable_path()).parent_path();
  for (const auto& prefix : {own.parent_path(), own.parent_path().parent_path()}) {
    const fs::path folder = prefix / "share/tandem/recipes";
    std::error_code ignored;
    if (fs::is_directory(folder, ignored)) {
      return folder.string();
    }
  }
  return "";
}

std::vector<std::string> recipes_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& name : list_directory(folder)) {
    if (fs::path(name).extension() == ".toml") {
      names.push_back(fs::path(name).stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string recipe_path(const std::string& text) {
  check_is_no_network(text);
  const std::string named = current_recipe(text);
  // Ignores directories, because the directory of a run may have the same name as the
  // recipe.
  std::error_code ignored;
  const bool is_file = fs::exists(named, ignored) && !fs::is_directory(named, ignored);
  if (is_file || text.empty() || text.find('/') != std::string::npos) {
    return named;
  }
  const std::string folder = recipes_folder();
  for (const char* ending : {"", ".toml"}) {
    const auto path = current_recipe(folder + "/" + text + ending);
    if (!folder.empty() && file_exists(path)) {
      return path;
    }
  }
  fail_unknown(text);
}

}  // namespace tandem::app
