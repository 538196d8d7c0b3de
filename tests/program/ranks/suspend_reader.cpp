// A library for LD_PRELOAD. The rank $SUSPENDED_READER suspends itself while it loads
// the data of a step: in a call with which the loader of a mapped file counts page
// faults (num_major_faults() in base/mapped_file.h).

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

// A call in the first epoch, after the first steps.
constexpr int kCall = 6;

bool is_suspended_reader() {
  const char* rank = std::getenv("RANK");
  const char* reader = std::getenv("SUSPENDED_READER");
  return rank != nullptr && reader != nullptr && std::strcmp(rank, reader) == 0;
}

}  // namespace

extern "C" int getrusage(__rusage_who_t who, rusage* usage) noexcept {
  static std::atomic<int> calls{0};
  static const auto next =
      reinterpret_cast<int (*)(__rusage_who_t, rusage*)>(dlsym(RTLD_NEXT, "getrusage"));
  if (who == RUSAGE_THREAD && is_suspended_reader() && ++calls == kCall) {
    raise(SIGSTOP);
  }
  return next(who, usage);
}
