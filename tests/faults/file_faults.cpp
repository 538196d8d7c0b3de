#include "tests/faults/file_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <sstream>
#include <string_view>

namespace tandem {

namespace {

struct Armed {
  FileFault fault;
  std::atomic<int64_t> operations{0};
};

// Never destroyed: other libraries use files until the end of the process.
Armed& armed() {
  static Armed& instance = *new Armed;
  return instance;
}
// While it is false, no call constructs Armed, which would allocate memory.
std::atomic<bool> is_armed{false};

bool is_in(std::string_view path, std::string_view folder) {
  return !folder.empty() && path.substr(0, folder.size()) == folder &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

std::array<char, 300> faulty{};

// One character per operation (operation_kinds()).
std::array<char, 1000> kinds{};
std::atomic<int64_t> before_exchange{-1};

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
};
// Never destroyed, like Armed.
Log& operation_log() {
  static Log& instance = *new Log;
  return instance;
}

std::atomic<bool> holding{false};
std::atomic<bool> released{false};

void hold() {
  holding = true;
  for (int i = 0; i < 20'000 && !released; ++i) {
    usleep(1000);
  }
  holding = false;
}

enum class What : char { write = 'w', needs_room = 'r', other = 'o' };
enum class Verdict { go_on, fail, die, tear };

void note_faulty(const char* call, std::string_view path) {
  std::snprintf(
      faulty.data(), faulty.size(), "%s %.*s", call, static_cast<int>(path.size()),
      path.data());
}

// Returns whether TANDEM_FAULT_RANK selects another rank than this process.
bool is_other_rank() {
  const char* wanted = std::getenv("TANDEM_FAULT_RANK");
  const char* rank = std::getenv("RANK");
  return wanted != nullptr && (rank == nullptr || std::string_view(rank) != wanted);
}

Verdict judge(const char* call, std::string_view path, What what) {
  if (!is_armed || !is_in(path, armed().fault.below) ||
      is_in(path, armed().fault.but_not_below) || is_other_rank()) {
    return Verdict::go_on;
  }
  const FileFault& fault = armed().fault;
  const int64_t number = ++armed().operations;
  if (number < static_cast<int64_t>(kinds.size())) {
    kinds[static_cast<size_t>(number - 1)] = static_cast<char>(what);
  }
  {
    const std::lock_guard<std::mutex> lock(operation_log().mutex);
    operation_log().lines.push_back(std::string(call) + " " + std::string(path));
  }
  if (fault.kind == FaultKind::full) {
    return number >= fault.operation && what != What::other ? Verdict::fail
                                                            : Verdict::go_on;
  }
  if (number != fault.operation) {
    return Verdict::go_on;
  }
  note_faulty(call, path);
  switch (fault.kind) {
    case FaultKind::fail:
      return Verdict::fail;
    case FaultKind::die:
      return Verdict::die;
    case FaultKind::tear:
      return Verdict::tear;
    case FaultKind::hold:
      hold();
      return Verdict::go_on;
    default:
      return Verdict::go_on;
  }
}

// `half`: the part of the operation that is done before the process is killed in it.
template <typename Call>
auto with_fault(
    const char* name, std::string_view path, What what, const Call& call,
    const std::function<void()>& half = [] {}) -> decltype(call()) {
  const Verdict verdict = judge(name, path, what);
  if (verdict == Verdict::fail) {
    errno = armed().fault.error;
    return -1;
  }
  if (verdict == Verdict::tear) {
    half();
    _exit(kFaultExit);
  }
  const auto result = call();
  if (verdict == Verdict::die) {
    _exit(kFaultExit);
  }
  return result;
}

struct Path {
  std::array<char, PATH_MAX + 1> text{};
  size_t size = 0;

  operator std::string_view() const {
    return {text.data(), size};
  }
};

Path path_of(int fd) {
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  Path path;
  const ssize_t size = readlink(link.data(), path.text.data(), PATH_MAX);
  path.size = size > 0 ? static_cast<size_t>(size) : 0;
  return path;
}

// Joins a path to the directory of a descriptor, as far as the tests need it.
std::string path_at(int directory, const char* name) {
  return directory == AT_FDCWD || name[0] == '/'
             ? std::string(name)
             : std::string(std::string_view(path_of(directory))) + "/" + name;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void arm_from_environment() {
  const char* text = std::getenv("TANDEM_FILE_FAULT");
  if (text == nullptr) {
    return;
  }
  FileFault fault;
  int kind = 0;
  std::istringstream(text) >> kind >> fault.operation >> fault.error >> fault.below;
  fault.kind = static_cast<FaultKind>(kind);
  arm(fault);
}

}  // namespace

void arm(const FileFault& fault) {
  armed().fault = fault;
  armed().operations = 0;
  kinds.fill('\0');
  before_exchange = -1;
  operation_log().lines.clear();
  is_armed = true;
}

int64_t file_operations() {
  return armed().operations;
}

std::string operation_kinds() {
  return kinds.data();
}

std::vector<std::string> file_operation_log() {
  const std::lock_guard<std::mutex> lock(operation_log().mutex);
  return operation_log().lines;
}

int64_t operations_before_exchange() {
  return before_exchange;
}

std::string faulty_operation() {
  return faulty.data();
}

bool is_holding() {
  return holding;
}

void release() {
  released = true;
}

}  // namespace tandem

using tandem::path_at;
using tandem::path_of;
using tandem::What;
using tandem::with_fault;

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = tandem::next<ssize_t(int, const void*, size_t)>("write");
  if (!tandem::is_armed) {
    return real(fd, data, size);
  }
  return with_fault(
      "write", path_of(fd), What::write, [&] { return real(fd, data, size); },
      [&] { [[maybe_unused]] const auto written = real(fd, data, size / 2); });
}

#define TANDEM_OPEN(NAME)                                                        \
  int NAME(const char* path, int flags, ...) {                                   \
    static auto* const real = tandem::next<int(const char*, int, ...)>(#NAME);   \
    va_list more;                                                                \
    va_start(more, flags);                                                       \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;       \
    va_end(more);                                                                \
    if ((flags & O_ACCMODE) == O_RDONLY && (flags & O_CREAT) == 0) {             \
      return real(path, flags, mode);                                            \
    }                                                                            \
    return with_fault(                                                           \
        #NAME, path, What::needs_room, [&] { return real(path, flags, mode); }); \
  }
TANDEM_OPEN(open)
TANDEM_OPEN(open64)

int ftruncate(int fd, off_t size) {
  static auto* const real = tandem::next<int(int, off_t)>("ftruncate");
  return with_fault(
      "ftruncate", path_of(fd), What::other, [&] { return real(fd, size); });
}

int fsync(int fd) {
  static auto* const real = tandem::next<int(int)>("fsync");
  return with_fault("fsync", path_of(fd), What::other, [&] { return real(fd); });
}

int fdatasync(int fd) {
  static auto* const real = tandem::next<int(int)>("fdatasync");
  return with_fault("fdatasync", path_of(fd), What::other, [&] { return real(fd); });
}

int rename(const char* from, const char* to) {
  static auto* const real = tandem::next<int(const char*, const char*)>("rename");
  return with_fault("rename", to, What::other, [&] { return real(from, to); });
}

int renameat2(
    int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  static auto* const real =
      tandem::next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (tandem::is_armed && tandem::armed().fault.no_exchange) {
    int64_t none = -1;
    tandem::before_exchange.compare_exchange_strong(
        none, tandem::armed().operations.load());
    errno = EINVAL;
    return -1;
  }
  return with_fault("renameat2", path_at(to_at, to), What::other, [&] {
    return real(from_at, from, to_at, to, flags);
  });
}

int unlink(const char* path) {
  static auto* const real = tandem::next<int(const char*)>("unlink");
  return with_fault("unlink", path, What::other, [&] { return real(path); });
}

int unlinkat(int at, const char* path, int flags) {
  static auto* const real = tandem::next<int(int, const char*, int)>("unlinkat");
  return with_fault("unlinkat", path_at(at, path), What::other, [&] {
    return real(at, path, flags);
  });
}

int remove(const char* path) {
  static auto* const real = tandem::next<int(const char*)>("remove");
  return with_fault("remove", path, What::other, [&] { return real(path); });
}

int rmdir(const char* path) {
  static auto* const real = tandem::next<int(const char*)>("rmdir");
  return with_fault("rmdir", path, What::other, [&] { return real(path); });
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = tandem::next<int(const char*, mode_t)>("mkdir");
  return with_fault("mkdir", path, What::needs_room, [&] { return real(path, mode); });
}

int symlink(const char* to, const char* path) {
  static auto* const real = tandem::next<int(const char*, const char*)>("symlink");
  return with_fault("symlink", path, What::needs_room, [&] { return real(to, path); });
}

}  // extern "C"
