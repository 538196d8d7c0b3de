// A library for LD_PRELOAD. The rank $SUSPENDED_READER suspends itself while it loads
// the data of a step: in a call with which the loader of a mapped file asks the kernel
// to read ahead (data/loader.h).

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

// A call in the first epoch, after the first steps.
constexpr int kCall = 300;

bool is_suspended_reader() {
  const char* rank = std::getenv("RANK");
  const char* reader = std::getenv("SUSPENDED_READER");
  return rank != nullptr && reader != nullptr && std::strcmp(rank, reader) == 0;
}

}  // namespace

extern "C" int madvise(void* address, size_t size, int advice) noexcept {
  static std::atomic<int> calls{0};
  static const auto next =
      reinterpret_cast<int (*)(void*, size_t, int)>(dlsym(RTLD_NEXT, "madvise"));
  if (advice == MADV_WILLNEED && is_suspended_reader() && ++calls == kCall) {
    raise(SIGSTOP);
  }
  return next(address, size, advice);
}
