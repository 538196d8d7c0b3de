#include <algorithm>

#include "app/recipe_runs/comparison.h"
#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/config/tutorial_figures.h"

namespace tandem::app {

namespace {

// Default of --repeat. The speed-up of two single runs is at least as inaccurate as the
// less accurate run.
constexpr int kScalingRepeats = 3;

std::vector<int> parse_counts(const std::string& text) {
  std::vector<int> counts;
  for (const auto& part : split(text, ',')) {
    const auto value = parse_number<int>(part);
    if (!value || *value < 1 || *value > 4096 ||
        std::find(counts.begin(), counts.end(), *value) != counts.end()) {
      counts.clear();
      break;
    }
    counts.push_back(*value);
  }
  if (counts.empty() || text.back() == ',') {
    throw ConfigError(
        "[scaling] --nproc is '" + text +
        "', expected different numbers of ranks, such as 1,2,3; change it");
  }
  return counts;
}

// Replaces scaling recipes by the recipes that they name. If `counts` is empty, because
// --nproc is not given, sets it to the numbers of ranks in the scaling recipe.
void expand(std::vector<std::string>& recipes, std::vector<int>& counts) {
  std::vector<std::string> expanded;
  for (const auto& recipe : recipes) {
    if (const auto scaling = read_scaling_recipe(recipe)) {
      expanded.insert(expanded.end(), scaling->recipes.begin(), scaling->recipes.end());
      counts = counts.empty() ? scaling->nproc : counts;
    } else {
      expanded.push_back(recipe);
    }
  }
  recipes = expanded;
}

}  // namespace

int run_scaling(const Arguments& arguments) {
  CLI::App app(
      "Runs each recipe with several numbers of ranks, and shows the runtime for each "
      "number, with the figures of the tutorial. The batch size is per rank, and so is "
      "the number of threads: OMP_NUM_THREADS, or 1. Speed-ups are ratios of medians. "
      "Recipes that this machine or build cannot run are skipped. The exit code is 1 "
      "if a run failed or all were skipped.",
      "tandem scaling");
  Comparison comparison;
  comparison.kind = "scaling";
  comparison.repeats = kScalingRepeats;
  std::string nproc;
  add_comparison_flags(app, comparison);
  app.add_option("--nproc", nproc, "numbers of ranks, such as 1,2,3 (default: 1,2)");
  parse_comparison(app, arguments, comparison);
  std::vector<int> counts = nproc.empty() ? std::vector<int>() : parse_counts(nproc);
  expand(comparison.recipes, counts);
  if (counts.empty()) {
    counts = {1, 2};
  }
  for (const auto& recipe : comparison.recipes) {
    for (const int count : counts) {
      auto& run = add_run(comparison, recipe, count);
      // Limits the number of threads. Otherwise, one rank would use all CPUs, and
      // speed-ups would be too low.
      if (!get_env("OMP_NUM_THREADS")) {
        run.variables = {{"OMP_NUM_THREADS", "1"}};
      }
    }
  }
  return run_comparison(comparison);
}

}  // namespace tandem::app
