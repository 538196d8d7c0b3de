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
    {"predict", "write a checkpoint's predictions as CSV", &work_predict},
    {"export", "write a checkpoint's model for Python", &work_export},
    {"data", "fetch, make or check a data set", &work_data},
    {"model", "print a model's layers, shapes and parameters", &work_model},
    {"bench", "time a step, the loader, an all-reduce", &work_bench},
    {"doctor", "print facts that need LibTorch", &work_doctor},
};

// Keeps freed memory in the process for the next step. glibc adapts its default
// thresholds to the sizes of freed blocks. Depending on the order of tensors in the
// heap, each step may then return memory to the system and get it back by page faults,
// which takes a third of the step's time.
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
      "tandem-worker: the part of tandem that links LibTorch; use `tandem` "
      "instead\n\n" +
          list_commands(kCommands));
  // Skips destructors of static objects. In every rank, LibTorch would need 50 ms to
  // unregister operators, and the writes would copy its shared pages.
  std::fflush(nullptr);
  std::quick_exit(code);
}
