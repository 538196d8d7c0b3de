#include <fmt/core.h>

#include <cstring>

#include "app/command_line.h"
#include "app/run_command_line.h"
#include "tandem/base/signals.h"

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
    {"launch", "start your program several times, as torchrun does", &run_launch},
    {"top", "show what the ranks of a run do", &run_top},
    {"recipes", "list recipes", &run_recipes},
    {"compare", "run recipes and write one table and report", &run_compare},
    {"scaling", "run recipes on several numbers of ranks", &run_scaling},
    {"plan", "predict step time and efficiency on many nodes", &run_plan},
    {"report", "write the report of a run or a comparison again", &run_report},
    {"eval", "evaluate a checkpoint", &run_eval},
    {"predict", "write predictions of a checkpoint as CSV", &run_predict},
    {"export", "write the model of a checkpoint for Python", &run_export},
    {"data", "download, generate or check a data set", &run_data},
    {"model", "print layers, shapes and parameters of a model", &run_model},
    {"bench", "time a step, the loader, an optimizer, an all-reduce", &run_bench},
    {"doctor", "check what this build and this machine can do", &run_doctor},
    {"version", "print the version", &show_version},
};

}  // namespace

int main(int argc, char** argv) {
  // `train` sets the effect of signals after it has read its arguments.
  if (argc > 1 && std::strcmp(argv[1], "train") == 0) {
    tandem::hold_signals();
  }
  return run_command_line(
      argc, argv, kCommands,
      "tandem: distributed training for C++ on LibTorch\n\n"
      "usage: tandem COMMAND [ARGUMENTS]\n\n" +
          list_commands(kCommands) +
          "\ntandem COMMAND --help describes a command. A first run:\n\n"
          "  tandem train --nproc 2\n");
}
