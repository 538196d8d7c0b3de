#include <fmt/core.h>

#include "app/command_line.h"
#include "app/run_command_line.h"

namespace {

using namespace tandem::app;

int show_version(const Arguments& arguments) {
  CLI::App app("Prints the version.", "tandem version");
  parse(app, arguments);
  fmt::print("tandem {}\n", TANDEM_VERSION);
  return 0;
}

const std::vector<Command> kCommands = {
    {"train", "train a model on one or more ranks", &run_train},
    {"launch", "start a program of yours n times, as torchrun does", &run_launch},
    {"recipes", "list recipes: name, tutorial, what they show", &run_recipes},
    {"compare", "run recipes; one table, one report", &run_compare},
    {"scaling", "runtime against number of ranks", &run_scaling},
    {"plan", "step time and efficiency at any number of nodes, predicted", &run_plan},
    {"report", "write the report of a run or comparison again", &run_report},
    {"eval", "evaluate a checkpoint", &run_eval},
    {"export", "write a checkpoint's model for Python", &run_export},
    {"data", "fetch, make or check a data set", &run_data},
    {"model", "print a model's layers, shapes and parameters", &run_model},
    {"bench", "time a step, the loader, an all-reduce", &run_bench},
    {"doctor", "what this build and this machine can do", &run_doctor},
    {"version", "print the version", &show_version},
};

}  // namespace

int main(int argc, char** argv) {
  return run_command_line(
      argc, argv, kCommands,
      "tandem: distributed training for C++ on LibTorch\n\n"
      "usage: tandem COMMAND [ARGUMENTS]\n\n" +
          list_commands(kCommands) +
          "\ntandem COMMAND --help says more. The first thing to try:\n\n"
          "  tandem train --nproc 2\n");
}
