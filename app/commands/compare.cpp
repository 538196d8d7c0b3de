#include "app/recipe_runs/comparison.h"
#include "tandem/base/text.h"

namespace tandem::app {

namespace {

CLI::Validator percent_above_zero() {
  const auto check = [](const std::string& text) -> std::string {
    const auto value = parse_number<double>(text);
    return value && *value > 0 && *value <= 100
               ? ""
               : "'" + text + "' is not an accuracy in percent, above 0 to 100";
  };
  return {check, ""};
}

}  // namespace

int run_compare(const Arguments& arguments) {
  CLI::App app(
      "Runs recipes one after another, as tandem train RECIPE does, and writes one "
      "table and one report, with the figures of the tutorials. The output of a run is "
      "in DIR/NAME/output.txt. Recipes that this machine or build cannot run are "
      "skipped. The exit code is 1 if a run failed or all recipes were skipped.",
      "tandem compare");
  Comparison comparison;
  comparison.kind = "compare";
  add_comparison_flags(app, comparison);
  app.add_option_function<double>(
         "--target", [&](const double& percent) { comparison.target = percent; },
         "accuracy in percent, on the validation part (on the test part without "
         "--validation); the first run to reach it wins (default: the most accurate "
         "run wins)")
      ->check(percent_above_zero());
  std::vector<std::string> grids;
  app.add_option_function<std::vector<std::string>>(
         "--grid",
         [&](const std::vector<std::string>& values) {
           grids.insert(grids.end(), values.begin(), values.end());
         },
         "SETTING=VALUE,VALUE: run each recipe with each value of a setting; several "
         "grids give all combinations")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  parse_comparison(app, arguments, comparison);
  for (const auto& recipe : comparison.recipes) {
    for (const auto& point : points_of(grids)) {
      add_run(comparison, recipe, 0, point);
    }
  }
  return run_comparison(comparison);
}

}  // namespace tandem::app
