#include "app/plan/comparison.h"

namespace tandem::app {

int run_compare(const Arguments& arguments) {
  CLI::App app(
      "Runs recipes one after the other, as tandem train RECIPE would, and writes one "
      "table and one report, beside the figures of their documents. A run's output is "
      "in DIR/NAME/output.txt.",
      "tandem compare");
  ComparisonFlags flags;
  add_comparison_flags(app, flags);
  parse(app, arguments);
  const std::string out = comparison_directory(flags.out, "compare");
  std::vector<PlannedRun> runs;
  std::vector<std::string> taken;
  for (const auto& recipe : flags.recipes) {
    runs.push_back(plan_run(recipe, flags.overrides, 0, out, taken));
  }
  return run_comparison("compare", runs, out);
}

}  // namespace tandem::app
