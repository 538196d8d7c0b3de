#include <malloc.h>

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

// Freed memory stays with the process for the next step. glibc's own thresholds follow
// the sizes of tensors: by the luck of their order in the heap, the tensors of each
// step go back to the system and are faulted in again, which takes a third of a step's
// time.
void keep_freed_memory() {
  constexpr int kMebibyte = 1 << 20;
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr &&
      std::getenv("GLIBC_TUNABLES") == nullptr) {
    mallopt(M_MMAP_THRESHOLD, 32 * kMebibyte);
    mallopt(M_TRIM_THRESHOLD, 512 * kMebibyte);
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
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
