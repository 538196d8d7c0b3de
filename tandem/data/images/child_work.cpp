#include "tandem/data/images/child_work.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <new>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/lost_pages.h"
#include "tandem/base/process.h"
#include "tandem/base/process_limits.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"

namespace tandem {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{2};
constexpr size_t kMostText = 4000;
constexpr int64_t kNone = -1;

// State of one child, in shared memory. A crashed child may have written anything.
struct Slot {
  // File that the child processes.
  std::atomic<int64_t> file;
  // True if `error` is the error of `file`.
  std::atomic<bool> failed;
  char error[kMostText + 1];
};

struct Shared {
  // First file that no child has taken. Children take files in order, so all files
  // before a file with an error are processed too.
  std::atomic<int64_t> next;
};

// A child process and the time at which it began its current file.
struct Child {
  Process process;
  Slot* slot;
  int64_t file = kNone;
  Deadline::Clock::time_point since = Deadline::Clock::now();
};

[[noreturn]] void run_child(
    const ChildWork& work, Shared& shared, Slot& slot, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (getppid() != parent) {
    _exit(1);
  }
  const auto fail = [&](const std::exception& error) {
    std::strncpy(slot.error, first_line(error).c_str(), kMostText);
    slot.failed = true;
    shared.next = work.count;
    _exit(0);
  };
  on_lost_page(fail);
  try {
    for (int64_t i = shared.next++; i < work.count; i = shared.next++) {
      slot.file = i;
      work.work(i);
    }
  } catch (const std::exception& error) {
    fail(error);
  }
  _exit(0);
}

class Children {
 public:
  Children(const ChildWork& work, const Deadline& deadline)
      : work_(work),
        deadline_(deadline),
        num_(std::min<int64_t>(usable_cpus(), work.count)),
        memory_(sizeof(Shared) + static_cast<size_t>(num_) * sizeof(Slot)),
        shared_(new (memory_.data()) Shared{}) {
    auto* slots = reinterpret_cast<Slot*>(memory_.data() + sizeof(Shared));
    const pid_t parent = getpid();
    for (int64_t i = 0; i < num_; ++i) {
      auto* slot = new (slots + i) Slot{};
      slot->file = kNone;
      const pid_t pid = fork();
      if (pid == 0) {
        run_child(work_, *shared_, *slot, parent);
      }
      if (pid < 0) {
        throw Error(explain_process_limit());
      }
      setpgid(pid, pid);
      children_.push_back({Process(pid, -1, -1), slot});
    }
  }

  void wait() {
    while (!children_.empty()) {
      std::this_thread::sleep_for(kBetweenLooks);
      for (auto child = children_.begin(); child != children_.end();) {
        if (const auto status = child->process.poll()) {
          note_end(*child, *status);
          child = children_.erase(child);
        } else {
          check_progress(*child++);
        }
      }
      if (const int signal = stop_signal(); signal != 0) {
        throw StoppedError(fmt::format(
            "[data] reading images was stopped by signal {}; start the command again",
            signal));
      }
    }
    if (!errors_.empty()) {
      throw DataError(errors_.begin()->second);
    }
  }

 private:
  // Returns the file that a child processes; a crashed child may have written another
  // number.
  int64_t file_of(const Child& child) const {
    return std::clamp<int64_t>(child.slot->file, 0, work_.count - 1);
  }

  void note_end(const Child& child, const ExitStatus& status) {
    if (!status.ok()) {
      shared_->next = work_.count;
      const int64_t file = file_of(child);
      errors_.emplace(
          file, fmt::format(
                    "[data] the process that decoded '{}' {}; check or remove the "
                    "file, or free some memory",
                    work_.path(file), status.describe()));
    } else if (child.slot->failed) {
      child.slot->error[kMostText] = '\0';
      errors_.emplace(file_of(child), child.slot->error);
    }
  }

  void check_progress(Child& child) const {
    const auto now = Deadline::Clock::now();
    if (const int64_t file = child.slot->file; file != child.file) {
      child.file = file;
      child.since = now;
    }
    if (now - child.since > deadline_.time()) {
      throw DataError(fmt::format(
          "[data] decoding '{}' has not ended within {} s; remove the file, or raise "
          "--timeout-seconds",
          work_.path(file_of(child)),
          static_cast<double>(deadline_.time().count()) / 1000));
    }
  }

  const ChildWork& work_;
  const Deadline& deadline_;
  const int64_t num_;
  SharedMemory memory_;
  Shared* const shared_;
  // Errors by the number of their file.
  std::map<int64_t, std::string> errors_;
  // Child processes. The destructor of an element kills its process.
  std::list<Child> children_;
};

// Returns null, and sets errno, if the memory cannot be mapped.
std::shared_ptr<uint8_t> map_shared(int fd, size_t bytes, int flags) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  return {
      static_cast<uint8_t*>(memory), [bytes](uint8_t* first) { munmap(first, bytes); }};
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes)
    : data_(map_shared(-1, bytes, MAP_ANONYMOUS)), bytes_(bytes) {
  if (data_ == nullptr) {
    throw std::bad_alloc();
  }
}

SharedMemory::SharedMemory(int fd, size_t bytes, const std::string& path)
    : data_(map_shared(fd, bytes, 0)), bytes_(bytes) {
  if (data_ == nullptr) {
    fail_on_file("map", path);
  }
  const auto name = std::make_shared<const MappedName>(data_.get(), bytes, path);
  data_ = {data_.get(), [mapped = data_, name](uint8_t*) {}};
}

std::shared_ptr<const uint8_t> SharedMemory::freeze() {
  mprotect(data_.get(), bytes_, PROT_READ);
  return data_;
}

void run_in_children(const ChildWork& work, const Deadline& deadline) {
  Children(work, deadline).wait();
}

}  // namespace tandem
