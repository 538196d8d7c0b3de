#pragma once

#include <cstdint>
#include <string>

namespace tandem::app {

struct ProgramDump {
  int64_t batch_size = 32;
  // True: measures the share of time of each call and kernel.
  bool profile = false;
};

/// Prints the calls and kernels of a training step of a network of torch.export, with
/// random inputs and cross-entropy. Throws ConfigError if the network is a chain of
/// layers or cannot be compiled.
void print_program(const std::string& path, const ProgramDump& dump);

}  // namespace tandem::app
