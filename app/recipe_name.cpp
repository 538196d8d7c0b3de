#include "app/recipe_name.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/config/run_config.h"

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

// Returns the recipes of a folder in alphabetical order, without ".toml".
std::vector<std::string> recipes_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() == ".toml") {
      names.push_back(file.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// `installed`: the folder of installed recipes, or "". A checkout has recipes as well.
[[noreturn]] void fail_unknown(const std::string& text, const std::string& installed) {
  constexpr const char* kInCheckout = "recipes";
  std::error_code ignored;
  const bool in_checkout = installed.empty() && fs::is_directory(kInCheckout, ignored);
  const std::string folder = in_checkout ? kInCheckout : installed;
  std::string message =
      "[recipe] recipe is '" + text + "', expected a file or the name of a recipe";
  if (folder.empty()) {
    throw ConfigError(message + "; write the path of a recipe");
  }
  const auto names = recipes_in(folder);
  message += did_you_mean(fs::path(text).stem().string(), names);
  throw ConfigError(
      message + "; choose " + (in_checkout ? "recipes/NAME.toml with NAME " : "") +
      "one of " + join(names) + (in_checkout ? "" : " (in " + folder + ")"));
}

}  // namespace

std::string recipe_path(const std::string& text) {
  // A run's directory may have its recipe's name.
  std::error_code ignored;
  const std::string named = current_recipe(text);
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
  fail_unknown(text, folder);
}

}  // namespace tandem::app
