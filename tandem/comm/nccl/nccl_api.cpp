#include "tandem/comm/nccl/nccl_api.h"

#include <dlfcn.h>

#include "tandem/base/error.h"

namespace tandem {

namespace {

constexpr int kOldest = 21800;

[[noreturn]] void refuse(const std::string& found) {
  throw ConfigError(
      "[comm] backend nccl needs NCCL 2.18 or newer, but " + found +
      "; install NVIDIA's libnccl2, or put its directory first in LD_LIBRARY_PATH");
}

class Library {
 public:
  explicit Library(const std::string& name)
      : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      // It begins with the name.
      refuse(dlerror());
    }
  }

  template <typename Signature>
  void find(const char* symbol, std::function<Signature>& function) const {
    void* found = dlsym(handle_, symbol);
    if (found == nullptr) {
      refuse(name_ + " has no " + symbol);
    }
    function = reinterpret_cast<Signature*>(found);
  }

 private:
  std::string name_;
  // Never closed: NCCL has threads.
  void* handle_;
};

std::string version_text(int code) {
  // 2.8 and older count otherwise.
  const int thousands = code < 10'000 ? 1'000 : 10'000;
  return std::to_string(code / thousands) + "." +
         std::to_string(code % thousands / 100) + "." + std::to_string(code % 100);
}

}  // namespace

std::shared_ptr<const NcclApi> load_nccl(const std::string& library) {
  const Library nccl(library);
  auto api = std::make_shared<NcclApi>();
  nccl.find("ncclGetVersion", api->get_version);
  int version = 0;
  if (api->get_version(&version) != NcclResult::success || version < kOldest) {
    refuse(library + " is " + version_text(version));
  }
  nccl.find("ncclGetUniqueId", api->get_unique_id);
  nccl.find("ncclCommInitRankConfig", api->comm_init_rank_config);
  nccl.find("ncclCommGetAsyncError", api->comm_get_async_error);
  nccl.find("ncclCommFinalize", api->comm_finalize);
  nccl.find("ncclCommDestroy", api->comm_destroy);
  nccl.find("ncclCommAbort", api->comm_abort);
  nccl.find("ncclAllReduce", api->all_reduce);
  nccl.find("ncclBroadcast", api->broadcast);
  nccl.find("ncclReduceScatter", api->reduce_scatter);
  nccl.find("ncclAllGather", api->all_gather);
  nccl.find("ncclSend", api->send);
  nccl.find("ncclRecv", api->recv);
  nccl.find("ncclGroupStart", api->group_start);
  nccl.find("ncclGroupEnd", api->group_end);
  nccl.find("ncclGetErrorString", api->get_error_string);
  nccl.find("ncclGetLastError", api->get_last_error);
  return api;
}

}  // namespace tandem
