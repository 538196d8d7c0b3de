#include "tandem/base/lost_pages.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

struct MappingSlot {
  std::atomic<bool> is_taken{false};
  // 0 while the other fields change.
  std::atomic<uintptr_t> begin{0};
  size_t size = 0;
  std::string path;
};

constexpr int kMostMappings = 256;

// Objects without a destructor, because threads may access files until the process has
// ended.
MappingSlot* mapping_slots() {
  static auto* const all = new MappingSlot[kMostMappings];
  return all;
}

using Action = std::function<void(const std::exception&)>;

Action& lost_page_action() {
  static auto* const own =
      new Action([](const std::exception& error) { log_error(error.what()); });
  return *own;
}

struct sigaction previous_bus_action {};

// Allocates memory, which a signal handler may do only because the interrupted code
// accesses a mapped file, so it is not inside the allocator.
[[noreturn]] void fail_lost_page(const MappingSlot& mapping, uintptr_t address) {
  // Another thread may have failed at the same time. It ends the process.
  static std::atomic<bool> has_failed{false};
  while (has_failed.exchange(true)) {
    pause();
  }
  struct stat status {};
  const bool exists = stat(mapping.path.c_str(), &status) == 0;
  const auto size = exists ? static_cast<size_t>(status.st_size) : 0;
  const std::string found =
      size < mapping.size && exists
          ? fmt::format("has {} bytes", size)
          : fmt::format("cannot be read at byte {}", address - mapping.begin);
  lost_page_action()(DataError(fmt::format(
      "[files] '{}' {}, expected {} bytes as when it was opened; restore the file and "
      "start again, and do not change files that a run uses",
      mapping.path, found, mapping.size)));
  _exit(1);
}

void handle_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (int i = 0; i < kMostMappings && info->si_code == BUS_ADRERR; ++i) {
    const MappingSlot& mapping = mapping_slots()[i];
    const uintptr_t begin = mapping.begin;
    if (begin != 0 && address - begin < mapping.size) {
      fail_lost_page(mapping, address);
    }
  }
  // The same access, or raise(), has its earlier effect.
  sigaction(signal, &previous_bus_action, nullptr);
  if (info->si_code <= 0) {
    raise(signal);
  }
}

void install_handler() {
  struct sigaction handler {};
  handler.sa_sigaction = &handle_bus_error;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &handler, &previous_bus_action);
}

}  // namespace

MappedName::MappedName(const void* begin, size_t size, const std::string& path) {
  static const bool is_installed = (install_handler(), true);
  (void)is_installed;
  for (int i = 0; i < kMostMappings && slot_ < 0; ++i) {
    MappingSlot& mapping = mapping_slots()[i];
    if (!mapping.is_taken.exchange(true)) {
      mapping.size = size;
      mapping.path = path;
      mapping.begin = reinterpret_cast<uintptr_t>(begin);
      slot_ = i;
    }
  }
}

MappedName::~MappedName() {
  if (slot_ >= 0) {
    mapping_slots()[slot_].begin = 0;
    mapping_slots()[slot_].is_taken = false;
  }
}

void on_lost_page(std::function<void(const std::exception& error)> own) {
  lost_page_action() = std::move(own);
}

}  // namespace tandem
