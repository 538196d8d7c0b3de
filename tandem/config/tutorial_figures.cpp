#include "tandem/config/tutorial_figures.h"

#include <sstream>

#include "tandem/base/error.h"
#include "tandem/config/recipe_toml.h"

namespace tandem {

namespace {

// A value of a recipe, with its key and the path of the recipe for errors.
struct RecipeEntry {
  const std::string& path;
  std::string key;
  const toml::node& node;
};

std::optional<RecipeEntry> entry_of(
    const std::string& path, const toml::table& table, const std::string& key) {
  const auto* node = table.get(key);
  return node == nullptr ? std::nullopt : std::optional(RecipeEntry{path, key, *node});
}

[[noreturn]] void refuse(const RecipeEntry& entry, const std::string& wanted) {
  std::ostringstream type;
  type << entry.node.type();
  throw ConfigError(
      "[config] " + at_line(entry.path, entry.node) + ": " + entry.key +
      " has the type " + type.str() + ", expected " + wanted + "; change it");
}

// Returns a table of a recipe, or nullptr if there is none.
const toml::table* part_of(
    const std::string& path, const toml::table& recipe, const std::string& name) {
  const auto entry = entry_of(path, recipe, name);
  if (entry && !entry->node.is_table()) {
    refuse(*entry, "a table, [" + name + "]");
  }
  return entry ? entry->node.as_table() : nullptr;
}

// Returns the [tutorial] table of a recipe, or nullptr. The key `tutorial` may also be
// a text, the number of the tutorial, such as "003".
const toml::table* tutorial_table(const std::string& path, const toml::table& recipe) {
  const auto entry = entry_of(path, recipe, "tutorial");
  return entry && entry->node.is_string()
             ? nullptr
             : part_of(path, recipe, entry ? "tutorial" : "document");
}

double number_of(const RecipeEntry& entry) {
  if (!entry.node.is_number()) {
    refuse(entry, "a number");
  }
  return entry.node.is_integer()
             ? static_cast<double>(*entry.node.value_exact<int64_t>())
             : *entry.node.value_exact<double>();
}

std::string text_of(const RecipeEntry& entry) {
  if (!entry.node.is_string()) {
    refuse(entry, "a string in quotes");
  }
  return *entry.node.value_exact<std::string>();
}

// Returns the items of a list, with the list's key.
std::vector<RecipeEntry> items_of(const RecipeEntry& entry) {
  const auto* list = entry.node.as_array();
  if (list == nullptr || list->empty()) {
    refuse(entry, "a list in brackets");
  }
  std::vector<RecipeEntry> items;
  for (const auto& item : *list) {
    items.push_back({entry.path, entry.key, item});
  }
  return items;
}

std::vector<int> rank_counts(const RecipeEntry& entry) {
  std::vector<int> counts;
  for (const auto& item : items_of(entry)) {
    const auto count = item.node.value_exact<int64_t>().value_or(0);
    if (count < 1 || count > 4096) {
      refuse(item, "a list of whole numbers from 1 to 4096");
    }
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

std::vector<double> numbers_of(const RecipeEntry& entry) {
  std::vector<double> numbers;
  for (const auto& item : items_of(entry)) {
    numbers.push_back(number_of(item));
  }
  return numbers;
}

// Reads a figure, which is a number or a list of numbers, and multiplies the numbers by
// `unit`.
TutorialFigure figure_of(
    const RecipeEntry& entry, const std::vector<int>& processes, double unit = 1) {
  TutorialFigure figure;
  if (!entry.node.is_array()) {
    figure.own = unit * number_of(entry);
    return figure;
  }
  const auto numbers = numbers_of(entry);
  if (!processes.empty() && processes.size() != numbers.size()) {
    throw ConfigError(
        "[config] " + at_line(entry.path, entry.node) + ": " + entry.key + " has " +
        std::to_string(numbers.size()) + " values, expected " +
        std::to_string(processes.size()) + ", as processes has; change one of them");
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int ranks = processes.empty() ? static_cast<int>(i) + 1 : processes[i];
    figure.by_ranks[ranks] = unit * numbers[i];
  }
  return figure;
}

[[noreturn]] void refuse_key(
    const RecipeEntry& entry, const std::vector<std::string>& known) {
  throw ConfigError(
      "[config] " + at_line(entry.path, entry.node) + ": unknown key '" + entry.key +
      "'" + did_you_mean(entry.key, known) + "; choose one of " + join(known));
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
  const auto entry = entry_of(path, recipe, "without_gpu");
  return entry ? named_recipe(path, text_of(*entry)) : "";
}

RecipeSummary read_recipe_summary(const std::string& path) {
  const auto recipe = parse_recipe(path);
  const auto text = [&](const toml::table& table, const char* key) {
    const auto entry = entry_of(path, table, key);
    return entry ? text_of(*entry) : "";
  };
  const auto* table = tutorial_table(path, recipe);
  return {
      table == nullptr ? text(recipe, "tutorial") : text(*table, "number"),
      text(recipe, "description")};
}

TutorialFigures read_tutorial_figures(const std::string& path) {
  TutorialFigures figures;
  const auto recipe = parse_recipe(path);
  const auto* table = tutorial_table(path, recipe);
  if (table == nullptr) {
    return figures;
  }
  std::vector<int> processes;
  if (const auto entry = entry_of(path, *table, "processes")) {
    processes = rank_counts(*entry);
  }
  for (const auto& [name, node] : *table) {
    const RecipeEntry entry{path, std::string(name.str()), node};
    const std::string& key = entry.key;
    if (key == "machine") {
      figures.machine = text_of(entry);
    } else if (key == "seconds") {
      figures.seconds = figure_of(entry, processes);
    } else if (key == "minutes") {
      figures.seconds = figure_of(entry, processes, 60);
    } else if (key == "test_accuracy") {
      figures.test_accuracy = figure_of(entry, processes);
    } else if (key == "train_accuracy") {
      figures.train_accuracy = figure_of(entry, processes);
    } else if (key == "last_losses") {
      figures.last_losses = numbers_of(entry);
    } else if (key == "number") {
      text_of(entry);
    } else if (key != "processes") {
      refuse_key(
          entry, {"number", "machine", "seconds", "minutes", "test_accuracy",
                  "train_accuracy", "last_losses", "processes"});
    }
  }
  return figures;
}

std::optional<ScalingRecipe> read_scaling_recipe(const std::string& path) {
  const auto recipe = parse_recipe(path);
  const auto* table = part_of(path, recipe, "scaling");
  if (table == nullptr) {
    return std::nullopt;
  }
  ScalingRecipe scaling;
  for (const auto& [name, node] : *table) {
    const RecipeEntry entry{path, std::string(name.str()), node};
    if (entry.key == "nproc") {
      scaling.nproc = rank_counts(entry);
    } else if (entry.key == "recipes") {
      for (const auto& item : items_of(entry)) {
        scaling.recipes.push_back(named_recipe(path, text_of(item)));
      }
    } else {
      refuse_key(entry, {"recipes", "nproc"});
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
