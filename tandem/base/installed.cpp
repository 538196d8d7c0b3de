#include "tandem/base/installed.h"

#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"

namespace tandem {

std::string find_installed(const std::string& file) {
  const std::string own = executable_path();
  const std::string folder = own.substr(0, own.rfind('/'));
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  for (const auto& path : {folder + "/" + file, prefix + "/libexec/tandem/" + file}) {
    if (file_exists(path)) {
      return path;
    }
  }
  return "";
}

std::string cuda_library_path() {
  const auto named = get_env("TANDEM_CUDA_LIBRARY");
  return named ? *named : find_installed("libtandem_cuda.so");
}

bool host_has_gpu() {
  // Of NVIDIA's driver, and of the one in Windows that WSL uses.
  return file_exists("/dev/nvidiactl") || file_exists("/dev/dxg");
}

}  // namespace tandem
