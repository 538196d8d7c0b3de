#pragma once

#include <string>
#include <vector>

#include "tandem/base/files.h"
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

/// Returns whether onnx_python() has the packages. Does not import them. With a broken
/// installation it returns true, so that tests fail.
inline bool python_has_onnx_runtime() {
  return file_exists(onnx_python()) &&
         run_onnx_python({"-c",
                          "import importlib.util as u, sys; "
                          "sys.exit(not all(map(u.find_spec, "
                          "['numpy', 'onnx', 'onnxruntime'])))"})
             .status.ok();
}

}  // namespace tandem

/// Skips the test if the packages are not installed.
#define TANDEM_NEEDS_ONNX_RUNTIME()                                             \
  do {                                                                          \
    if (!::tandem::python_has_onnx_runtime()) {                                 \
      GTEST_SKIP() << "no onnxruntime of PyPI; scripts/setup --torchrun, then " \
                      "scripts/test -R Onnx";                                   \
    }                                                                           \
  } while (false)
