#include "tandem/config/tutorial_figures.h"

#include <filesystem>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/config/recipe_toml.h"
#include "tandem/config/run_config.h"

namespace tandem {

namespace {

[[noreturn]] void refuse(
    const std::string& path, const toml::node& node, const std::string& key,
    const std::string& wanted) {
  std::ostringstream type;
  type << node.type();
  throw ConfigError(
      "[config] " + at_line(path, node) + ": " + key + " has the type " + type.str() +
      ", expected " + wanted + "; change it");
}

// Returns a table of a recipe, or nullptr if there is none.
const toml::table* part_of(
    const toml::table& recipe, const std::string& path, const std::string& name) {
  const auto* node = recipe.get(name);
  if (node != nullptr && node->as_table() == nullptr) {
    refuse(path, *node, name, "a table, [" + name + "]");
  }
  return node == nullptr ? nullptr : node->as_table();
}

// Returns the [tutorial] table of a recipe, or nullptr. The key `tutorial` may also be
// a text, the number of the tutorial, such as "003".
const toml::table* tutorial_table(const toml::table& recipe, const std::string& path) {
  const auto* node = recipe.get("tutorial");
  if (node != nullptr && node->is_string()) {
    return nullptr;
  }
  return part_of(recipe, path, node == nullptr ? "document" : "tutorial");
}

double number_of(
    const std::string& path, const toml::node& node, const std::string& key) {
  if (!node.is_number()) {
    refuse(path, node, key, "a number");
  }
  return node.is_integer() ? static_cast<double>(*node.value_exact<int64_t>())
                           : *node.value_exact<double>();
}

std::string text_of(
    const std::string& path, const toml::node& node, const std::string& key) {
  if (!node.is_string()) {
    refuse(path, node, key, "a string in quotes");
  }
  return *node.value_exact<std::string>();
}

const toml::array& list_of(
    const std::string& path, const toml::node& node, const std::string& key) {
  if (node.as_array() == nullptr || node.as_array()->empty()) {
    refuse(path, node, key, "a list in brackets");
  }
  return *node.as_array();
}

std::vector<int> rank_counts(
    const std::string& path, const toml::node& node, const std::string& key) {
  std::vector<int> counts;
  for (const auto& item : list_of(path, node, key)) {
    const auto count = item.value_exact<int64_t>().value_or(0);
    if (count < 1 || count > 4096) {
      refuse(path, item, key, "a list of whole numbers from 1 to 4096");
    }
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

std::vector<double> numbers_of(
    const std::string& path, const toml::node& node, const std::string& key) {
  std::vector<double> numbers;
  for (const auto& item : list_of(path, node, key)) {
    numbers.push_back(number_of(path, item, key));
  }
  return numbers;
}

// Reads a figure, which is a number or a list of numbers, and multiplies the numbers by
// `unit`.
TutorialFigure figure_of(
    const std::string& path, const toml::node& node, const std::string& key,
    const std::vector<int>& processes, double unit) {
  TutorialFigure figure;
  if (node.as_array() == nullptr) {
    figure.own = unit * number_of(path, node, key);
    return figure;
  }
  const auto numbers = numbers_of(path, node, key);
  if (!processes.empty() && processes.size() != numbers.size()) {
    throw ConfigError(
        "[config] " + at_line(path, node) + ": " + key + " has " +
        std::to_string(numbers.size()) + " values, expected " +
        std::to_string(processes.size()) + ", as processes has; change one of them");
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int ranks = processes.empty() ? static_cast<int>(i) + 1 : processes[i];
    figure.by_ranks[ranks] = unit * numbers[i];
  }
  return figure;
}

[[noreturn]] void unknown(
    const std::string& path, const toml::node& node, const std::string& key,
    const std::vector<std::string>& known) {
  throw ConfigError(
      "[config] " + at_line(path, node) + ": unknown key '" + key + "'" +
      did_you_mean(key, known) + "; choose one of " + join(known));
}

}  // namespace

std::optional<double> TutorialFigure::at(int ranks, int own_ranks) const {
  const auto found = by_ranks.find(ranks);
  return found != by_ranks.end() ? found->second
         : ranks == own_ranks    ? own
                                 : std::nullopt;
}

std::string read_without_gpu(const std::string& path) {
  const auto recipe = parse_recipe(path);
  const auto* node = recipe.get("without_gpu");
  if (node == nullptr) {
    return "";
  }
  const auto folder = std::filesystem::path(path).parent_path();
  return current_recipe((folder / text_of(path, *node, "without_gpu")).string());
}

RecipeSummary read_recipe_summary(const std::string& path) {
  const auto recipe = parse_recipe(path);
  const auto text = [&](const toml::table& table, const char* key) {
    const auto* node = table.get(key);
    return node == nullptr ? "" : text_of(path, *node, key);
  };
  const auto* table = tutorial_table(recipe, path);
  return {
      table == nullptr ? text(recipe, "tutorial") : text(*table, "number"),
      text(recipe, "description")};
}

TutorialFigures read_tutorial_figures(const std::string& path) {
  TutorialFigures figures;
  const auto recipe = parse_recipe(path);
  const auto* table = tutorial_table(recipe, path);
  if (table == nullptr) {
    return figures;
  }
  std::vector<int> processes;
  if (const auto* node = table->get("processes")) {
    processes = rank_counts(path, *node, "processes");
  }
  for (const auto& [name, node] : *table) {
    const std::string key(name.str());
    const auto figure = [&, &node = node](double unit = 1) {
      return figure_of(path, node, key, processes, unit);
    };
    if (key == "machine") {
      figures.machine = text_of(path, node, key);
    } else if (key == "seconds") {
      figures.seconds = figure();
    } else if (key == "minutes") {
      figures.seconds = figure(60);
    } else if (key == "test_accuracy") {
      figures.test_accuracy = figure();
    } else if (key == "train_accuracy") {
      figures.train_accuracy = figure();
    } else if (key == "last_losses") {
      figures.last_losses = numbers_of(path, node, key);
    } else if (key == "number") {
      text_of(path, node, key);
    } else if (key != "processes") {
      unknown(
          path, node, key,
          {"number", "machine", "seconds", "minutes", "test_accuracy", "train_accuracy",
           "last_losses", "processes"});
    }
  }
  return figures;
}

std::optional<ScalingRecipe> read_scaling_recipe(const std::string& path) {
  const auto recipe = parse_recipe(path);
  const auto* table = part_of(recipe, path, "scaling");
  if (table == nullptr) {
    return std::nullopt;
  }
  ScalingRecipe scaling;
  const auto folder = std::filesystem::path(path).parent_path();
  for (const auto& [name, node] : *table) {
    const std::string key(name.str());
    if (key == "nproc") {
      scaling.nproc = rank_counts(path, node, key);
    } else if (key == "recipes") {
      for (const auto& item : list_of(path, node, key)) {
        scaling.recipes.push_back(
            current_recipe((folder / text_of(path, item, key)).string()));
      }
    } else {
      unknown(path, node, key, {"recipes", "nproc"});
    }
  }
  if (scaling.recipes.empty()) {
    throw ConfigError(
        "[config] " + at_line(path, *table) +
        ": [scaling] has no recipes, expected a list; add recipes = [...]");
  }
  return scaling;
}

}  // namespace tandem
