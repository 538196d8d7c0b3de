#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/command_line.h"
#include "app/report/run_report.h"

namespace tandem::app {

int run_report(const Arguments& arguments) {
  CLI::App app(
      "Writes DIR/report.html, a page of results, charts and settings, from the files "
      "of compare, scaling or train --out in DIR.",
      "tandem report");
  std::string directory;
  app.add_option("directory", directory, "directory of a comparison or a run")
      ->required();
  parse(app, arguments);
  auto table = read_run_table(directory);
  write_report(directory, table);
  fmt::print("{}/report.html\n", directory);
  return 0;
}

}  // namespace tandem::app
