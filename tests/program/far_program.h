#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace tandem {

/// Runs `tandem` with a CUDA library whose GPUs are devices in main memory
/// (tests/device/far_library.cpp).
inline CommandResult run_far_program(
    const std::vector<std::string>& arguments, Variables variables = {}) {
  std::vector<std::string> command = {program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  variables.push_back({"TANDEM_CUDA_LIBRARY", program("libfar_cuda.so")});
  return run_command(command, variables, 800);
}

}  // namespace tandem
