#include <cstdio>
#include <cstdlib>

#include "app/run_command_line.h"
#include "tandem/launch/fork_server.h"

namespace {

using namespace tandem::app;

const std::vector<Command> kCommands = {
    {"train", "one rank of a run, or all of them as threads", &work_train},
    {"eval", "evaluate a checkpoint", &work_eval},
    {"export", "write a checkpoint's model for Python", &work_export},
    {"data", "fetch, make or check a data set", &work_data},
    {"model", "print a model's layers, shapes and parameters", &work_model},
    {"bench", "time a step, the loader, an all-reduce", &work_bench},
    {"doctor", "facts that need LibTorch, as lines", &work_doctor},
};

}  // namespace

int main(int argc, char** argv) {
  tandem::serve_as_fork_server();
  const int code = run_command_line(
      argc, argv, kCommands,
      "tandem-worker: the part of tandem that links LibTorch. Use `tandem`.\n\n" +
          list_commands(kCommands));
  // Without destructors of static objects: LibTorch takes 50 ms and a copy of each of
  // its pages, in every rank, to unregister operators that nobody will ask for.
  std::fflush(nullptr);
  std::quick_exit(code);
}
