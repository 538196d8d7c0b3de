#include "app/recipe_runs/planned_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/report/row_values.h"
#include "app/report/run_report.h"
#include "app/torchrun_variables.h"
#include "app/train_flags.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/data/named_datasets.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/mpirun.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

std::string wanted_name(const std::string& recipe, int nproc) {
  const std::string stem = std::filesystem::path(recipe).stem().string();
  return nproc > 0 ? fmt::format("{}-{}", stem, nproc) : stem;
}

// Returns `wanted`, or a name such as "wanted-2" if `taken` contains `wanted`. Adds the
// returned name to `taken`.
std::string free_name(const std::string& wanted, std::vector<std::string>& taken) {
  std::string name = wanted;
  for (int i = 2; std::find(taken.begin(), taken.end(), name) != taken.end(); ++i) {
    name = fmt::format("{}-{}", wanted, i);
  }
  taken.push_back(name);
  return name;
}

std::string obstacle_of(const RunConfig& config) {
  if (config.needs_mpirun() && !has_mpirun()) {
    return "mpirun is missing; apt-get install openmpi-bin";
  }
  if (config.ranks.nnodes > 1) {
    return fmt::format(
        "it needs {} hosts; run tandem train on each host", config.ranks.nnodes);
  }
  if (dataset_is_missing(config.data.source)) {
    return config.data.source + " is missing; run tandem data fetch " +
           config.data.source;
  }
  return "";
}

Arguments with_out(const PlannedRun& run, const std::string& directory) {
  Arguments arguments = run.train_arguments;
  arguments.insert(arguments.end(), {"--out", directory});
  return arguments;
}

// Returns the command of a run: `tandem train ...`, under mpirun if the recipe needs
// it. The output goes to a file, so that the file can be read during the run.
std::vector<std::string> command_of(
    const PlannedRun& run, const std::string& directory) {
  const Arguments arguments = with_out(run, directory);
  std::vector<std::string> command = {executable_path(), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (run.config.needs_mpirun()) {
    command = mpirun_command(run.config.num_ranks_here(), command);
  }
  std::vector<std::string> all = {
      "/bin/sh", "-c", "exec \"$@\" >\"$0\" 2>&1", directory + "/output.txt"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

// Returns the tutorial's figures for the number of ranks of the run.
ordered_json tutorial_json(const PlannedRun& run) {
  const TutorialFigures& tutorial = run.tutorial;
  const int ranks = run.config.num_ranks_here();
  const int own_ranks = run.recipe_config.num_ranks_here();
  ordered_json json = ordered_json::object();
  if (!tutorial.machine.empty()) {
    json["machine"] = tutorial.machine;
  }
  const auto add = [&](const char* key, const TutorialFigure& figure) {
    if (const auto value = figure.at(ranks, own_ranks)) {
      json[key] = *value;
    }
  };
  add("seconds", tutorial.seconds);
  add("test_accuracy", tutorial.test_accuracy);
  add("train_accuracy", tutorial.train_accuracy);
  if (static_cast<int>(tutorial.last_losses.size()) == ranks) {
    json["last_losses"] = tutorial.last_losses;
  }
  if (!json.empty()) {
    json["epochs"] = run.recipe_config.training.epochs;
  }
  return json;
}

void add_summary(ordered_json& row, const std::string& path) {
  const auto summary = read_json(path);
  for (const auto& [key, value] : summary.items()) {
    if (key != "format_version" && key != "name") {
      row[key] = value;
    }
  }
}

}  // namespace

std::vector<GridPoint> points_of(const std::vector<std::string>& grids) {
  std::vector<GridPoint> points = {{}};
  for (const auto& grid : grids) {
    const size_t equals = grid.find('=');
    const auto values = equals == std::string::npos
                            ? std::vector<std::string>()
                            : split(grid.substr(equals + 1), ',');
    if (equals == 0 || values.empty()) {
      throw ConfigError(
          "[command line] --grid is '" + grid +
          "', expected SETTING=VALUE,VALUE; change it");
    }
    std::vector<GridPoint> more;
    for (const auto& point : points) {
      for (const auto& value : values) {
        GridPoint next = point;
        next.suffix += "-" + grid.substr(0, equals + 1) + value;
        std::replace(next.suffix.begin(), next.suffix.end(), '/', '_');
        next.flags.insert(
            next.flags.end(), {"--set", grid.substr(0, equals + 1) + value});
        more.push_back(next);
      }
    }
    points = more;
  }
  return points;
}

PlannedRun plan_run(
    const std::string& recipe, const Arguments& flags, int nproc,
    const GridPoint& point, int repeats, const std::string& out,
    std::vector<std::string>& taken) {
  PlannedRun run;
  run.recipe = recipe;
  run.name = free_name(wanted_name(recipe, nproc) + point.suffix, taken);
  run.directories = {run.name};
  for (int i = 2; i <= repeats; ++i) {
    run.directories.push_back(free_name(fmt::format("{}.{}", run.name, i), taken));
  }
  if (read_scaling_recipe(recipe)) {
    run.obstacle = "it is for tandem scaling " + recipe;
    return run;
  }
  run.train_arguments = {recipe};
  for (const auto& more : {flags, point.flags}) {
    run.train_arguments.insert(run.train_arguments.end(), more.begin(), more.end());
  }
  if (nproc > 0) {
    run.train_arguments.insert(
        run.train_arguments.end(), {"--nproc", std::to_string(nproc)});
  }
  run.config = parse_train_arguments(with_out(run, out + "/" + run.name));
  run.tutorial = read_tutorial_figures(recipe);
  // Reads only the settings. The run itself checks whether its network is trusted.
  run.recipe_config = parse_train_arguments({recipe, "--trust"});
  run.obstacle = obstacle_of(run.config);
  return run;
}

ordered_json run_planned(const PlannedRun& run, int repeat, const std::string& out) {
  ordered_json row;
  row["name"] = run.name;
  row["recipe"] = run.recipe;
  row["status"] = "skipped";
  row["reason"] = run.obstacle;
  if (!run.obstacle.empty()) {
    return row;
  }
  row["directory"] = run.directories[static_cast<size_t>(repeat)];
  const std::string directory = out + "/" + text_in(row, "directory");
  make_directories(directory);
  const FailureFile file;
  ProcessOptions options;
  options.command = command_of(run, directory);
  options.variables = file.variables();
  for (const auto& more : {TorchrunVariables::none(), run.variables}) {
    options.variables.insert(options.variables.end(), more.begin(), more.end());
  }
  const auto start = std::chrono::steady_clock::now();
  const ExitStatus status = Process(options).wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::string summary = directory + "/summary.json";
  row["world_size"] = run.config.num_ranks_here();
  row["tutorial"] = tutorial_json(run);
  if (run.config.data.limit != run.recipe_config.data.limit) {
    row["limit"] = run.config.data.limit;
  }
  if (status.ok() && file_exists(summary)) {
    row["status"] = "done";
    row["wall_seconds"] = took.count();
    add_summary(row, summary);
  } else {
    const auto reports = file.read();
    const bool misused = !reports.empty() && reports.front().code == 2;
    row["status"] = misused ? "skipped" : "failed";
    row["reason"] =
        reports.empty() ? "it " + status.describe() : reports.front().message;
  }
  return row;
}

}  // namespace tandem::app
