#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/command_line.h"
#include "app/report/run_report.h"

namespace tandem::app {

int run_report(const Arguments& arguments) {
  CLI::App app(
      "Writes DIR/report.html and DIR/report.svg again, from what compare, scaling or "
      "train --out left "
      "there.",
      "tandem report");
  std::string directory;
  app.add_option("directory", directory, "of a comparison or of a run")->required();
  parse(app, arguments);
  auto table = read_run_table(directory);
  write_report(directory, table);
  fmt::print("{}/report.html\n", directory);
  return 0;
}

}  // namespace tandem::app
