#pragma once

#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tests/places.h"
#include "tests/results.h"

namespace tandem {

/// Returns the path of the Python interpreter that runs PyTorch in parity tests. It is
/// $TANDEM_TEST_PYTHON if this variable is set, otherwise Debian's Python.
inline std::string python() {
  return get_env("TANDEM_TEST_PYTHON").value_or("/usr/bin/python3");
}

/// Returns the path of torchrun. It is $TANDEM_TEST_TORCHRUN if this variable is set,
/// otherwise the program of the newest PyTorch that `scripts/setup --torchrun`
/// installs. The file may not exist.
inline std::string torchrun() {
  const auto home = get_env("HOME").value_or("/nonexistent");
  const auto cache = get_env("XDG_CACHE_HOME").value_or(home + "/.cache");
  return get_env("TANDEM_TEST_TORCHRUN")
      .value_or(cache + "/tandem/torchrun/bin/torchrun");
}

/// Returns the path of the Python interpreter of torchrun().
inline std::string newest_python() {
  const auto path = torchrun();
  return path.substr(0, path.rfind('/') + 1) + "python";
}

/// Runs Python with one thread for numerical libraries.
inline CommandResult run_python(
    const std::vector<std::string>& arguments, const std::string& program = python()) {
  std::vector<std::string> command = {program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(
      command, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}}, 300);
}

/// Runs tests/parity/peer.py.
inline CommandResult run_peer(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), source_dir() + "/tests/parity/peer.py");
  return run_python(arguments);
}

/// Returns whether a Python interpreter exists and finds the modules, which are
/// separated by spaces. Does not import them, because an import of torch takes a
/// second. With a broken installation it returns true, so that tests fail.
inline bool python_has(
    const std::string& modules, const std::string& program = python()) {
  return file_exists(program) &&
         run_python(
             {"-c",
              "import importlib.util as u, sys; "
              "sys.exit(not all(map(u.find_spec, sys.argv[1].split())))",
              modules},
             program)
             .status.ok();
}

}  // namespace tandem

/// Skips the test if Python does not find the module torch, which scripts/setup
/// installs.
#define TANDEM_NEEDS_PYTHON_TORCH()                                                \
  do {                                                                             \
    if (!::tandem::python_has("torch")) {                                          \
      GTEST_SKIP()                                                                 \
          << ::tandem::python()                                                    \
          << " has no module 'torch'; scripts/setup, then scripts/test -R Parity"; \
    }                                                                              \
  } while (false)
