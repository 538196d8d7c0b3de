#pragma once

#include <string>
#include <vector>

#include "tests/parity/python.h"

namespace tandem {

/// Returns the path of a Python interpreter with the packages onnx and onnxruntime. It
/// is $TANDEM_TEST_ONNX_PYTHON if this variable is set, otherwise the Python that
/// `scripts/setup --torchrun` installs. Debian has no onnxruntime.
inline std::string onnx_python() {
  return get_env("TANDEM_TEST_ONNX_PYTHON").value_or(newest_python());
}

/// Runs onnx_python() with one thread for numerical libraries.
inline CommandResult run_onnx_python(const std::vector<std::string>& arguments) {
  return run_python(arguments, onnx_python());
}

}  // namespace tandem

/// Skips the test if the packages are not installed.
#define TANDEM_NEEDS_ONNX_RUNTIME()                                                 \
  do {                                                                              \
    if (!::tandem::python_has("numpy onnx onnxruntime", ::tandem::onnx_python())) { \
      GTEST_SKIP() << "no onnxruntime of PyPI; scripts/setup --torchrun, then "     \
                      "scripts/test -R Onnx";                                       \
    }                                                                               \
  } while (false)
