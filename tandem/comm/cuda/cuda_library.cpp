#include "tandem/comm/cuda/cuda_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace {

const CudaLibrary& load() {
  const std::string path = cuda_library_path();
  if (path.empty()) {
    throw ConfigError(
        "[device] this build has no libtandem_cuda.so, which --device cuda needs; "
        "build with -DTANDEM_TORCH_PYTHON=PYTHON, whose torch has CUDA, or use "
        "--device cpu");
  }
  // RTLD_GLOBAL makes LibTorch's CUDA operators, which register themselves, available
  // to all libraries.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  using Entry = const CudaLibrary* (*)();
  auto* const entry = library == nullptr
                          ? nullptr
                          : reinterpret_cast<Entry>(dlsym(library, "tandem_cuda"));
  if (entry == nullptr) {
    throw ConfigError(fmt::format(
        "[device] {} cannot be loaded: {}; install the CUDA libraries that LibTorch "
        "needs, or use --device cpu",
        path, dlerror()));
  }
  return *entry();
}

}  // namespace

const CudaLibrary& load_cuda_library() {
  static const CudaLibrary& library = load();
  return library;
}

Placement cuda_placement(const CudaLibrary& cuda, int index, const CudaFacts& facts) {
  if (!facts.why_none.empty()) {
    throw ConfigError(fmt::format(
        "[device] cuda was requested, but there is no usable GPU: {}; fix the driver, "
        "or use --device cpu",
        facts.why_none));
  }
  const auto count = static_cast<int>(facts.devices.size());
  if (index >= count) {
    throw ConfigError(fmt::format(
        "[device] device is cuda:{}, expected cuda:0{}; change --device", index,
        count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
  }
  try {
    return {
        cuda.use_device(index), [&cuda, index] { return cuda.free_bytes(index); },
        [&cuda, index] { return cuda.peak_bytes(index); }};
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format(
        "[device] cuda:{} cannot be used: {}; choose another GPU, or --device cpu",
        index, first_line(error)));
  }
}

}  // namespace tandem
