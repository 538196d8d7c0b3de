#pragma once

#include <filesystem>

#include "program.h"

namespace tandem {

/// `tandem` with a tandem-worker-cuda whose GPUs are devices in main memory
/// (tests/device/worker): what --device cuda does, as a user sees it.
class FarProgram {
 public:
  FarProgram() {
    namespace fs = std::filesystem;
    // A copy: a program's place is that of the file it was linked to.
    fs::copy_file(program(), folder_ / "tandem");
    fs::create_symlink(program("tandem-worker"), folder_ / "tandem-worker");
    fs::create_symlink(program("far_worker"), folder_ / "tandem-worker-cuda");
  }

  CommandResult run(
      const std::vector<std::string>& arguments,
      const Variables& variables = {}) const {
    std::vector<std::string> command = {folder_ / "tandem"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command, variables, 800);
  }

 private:
  Scratch folder_;
};

}  // namespace tandem
