#include "tandem/launch/status/rank_status.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr const char* kStatusVariable = "TANDEM_STATUS";
constexpr const char* kSlotVariable = "TANDEM_STATUS_SLOT";

// Report of one rank. Times are in nanoseconds on a clock that all processes of a host
// share; 0 means never.
struct Report {
  pid_t pid;
  Activity activity;
  char operation[24];
  char label[40];
  int64_t number;
  int64_t waiting_since;
  int64_t epoch;
  int64_t step;
  int64_t step_at;
  double loss;
  double learning_rate;
  double samples_per_second;
  int64_t checkpoint_step;
  int64_t checkpoint_at;
};

// A report in shared memory. One thread writes it.
struct Slot {
  // Odd while the rank writes the report.
  std::atomic<uint32_t> version;
  Report report;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double seconds_since(int64_t then) {
  return then == 0 ? 0 : std::max(0.0, 1e-9 * static_cast<double>(now_ns() - then));
}

template <size_t size>
void copy_text(char (&target)[size], const char* text) {
  std::strncpy(target, text, size - 1);
  target[size - 1] = '\0';
}

// Returns a copy of a report that its rank did not change meanwhile. A rank that was
// killed or suspended in a write leaves an odd version; its report is used as it is.
Report copy_of(const Slot& slot) {
  constexpr int kTries = 1000;
  Report copy{};
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const uint32_t before = slot.version.load(std::memory_order_acquire);
    std::memcpy(&copy, &slot.report, sizeof(copy));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && slot.version.load(std::memory_order_relaxed) == before) {
      break;
    }
  }
  copy.operation[sizeof(copy.operation) - 1] = '\0';
  copy.label[sizeof(copy.label) - 1] = '\0';
  return copy;
}

std::string name_of_wait(const Report& report) {
  const std::string label = report.label;
  return report.operation +
         (report.number == 0 ? "" : " #" + std::to_string(report.number)) +
         (label.empty() ? "" : " (" + label + ")");
}

RankStatus status_of(const Report& report, int rank) {
  RankStatus status;
  status.rank = rank;
  status.pid = report.pid;
  if (report.pid == 0) {
    return status;
  }
  status.activity = report.activity;
  if (report.waiting_since != 0) {
    status.operation = printable(name_of_wait(report));
    status.waiting_seconds = seconds_since(report.waiting_since);
  }
  // A rank that waits for others is not in an uninterruptible wait, but a rank that
  // reads a file may be.
  const Halt halt = halt_of(report.pid);
  status.suspended = halt == Halt::stopped || halt == Halt::frozen ||
                     (halt == Halt::uninterruptible && status.waiting_seconds > 0);
  if (report.step_at != 0) {
    status.epoch = report.epoch + 1;
    status.step = report.step;
    status.step_seconds = seconds_since(report.step_at);
  }
  status.loss = report.loss;
  status.learning_rate = report.learning_rate;
  status.samples_per_second = report.samples_per_second;
  if (report.checkpoint_at != 0) {
    status.checkpoint_step = report.checkpoint_step;
    status.checkpoint_seconds = seconds_since(report.checkpoint_at);
  }
  return status;
}

// Maps the slot of this rank; null if no launcher of tandem started this process.
Slot* map_own_slot() {
  const auto path = get_env(kStatusVariable);
  const auto local = parse_number<int>(get_env(kSlotVariable).value_or(""));
  const int fd = path && local ? open(path->c_str(), O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) {
    return nullptr;
  }
  const off_t size = lseek(fd, 0, SEEK_END);
  const auto offset = sizeof(Slot) * static_cast<size_t>(std::max(0, *local));
  void* memory = MAP_FAILED;
  if (*local >= 0 && static_cast<size_t>(size) >= offset + sizeof(Slot)) {
    memory = mmap(
        nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  return memory == MAP_FAILED
             ? nullptr
             : reinterpret_cast<Slot*>(static_cast<char*>(memory) + offset);
}

// Returns this rank's slot; null if this thread cannot report.
Slot* own_slot() {
  static Slot* const slot = map_own_slot();
  static const auto rank = parse_number<int>(get_env("RANK").value_or(""));
  // Other ranks of this process are threads.
  if (slot == nullptr || thread_rank() != rank) {
    return nullptr;
  }
  static const auto reporter = std::this_thread::get_id();
  return std::this_thread::get_id() == reporter ? slot : nullptr;
}

template <typename Change>
void write_report(const Change& change) {
  Slot* slot = own_slot();
  if (slot == nullptr) {
    return;
  }
  const uint32_t version = slot->version.load(std::memory_order_relaxed) | 1;
  slot->version.store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  if (slot->report.pid == 0) {
    slot->report.pid = getpid();
  }
  change(slot->report);
  slot->version.store(version + 1, std::memory_order_release);
}

}  // namespace

const char* name_of(Activity activity) {
  const auto number = static_cast<size_t>(activity);
  return number < std::size(kActivityNames) ? kActivityNames[number] : "unknown";
}

std::pair<std::string, std::string> status_slot_variable(int local_rank) {
  return {kSlotVariable, std::to_string(local_rank)};
}

StatusBoard::StatusBoard(int first_rank, int num_ranks)
    : first_rank_(first_rank),
      num_ranks_(num_ranks),
      fd_(memfd_create("tandem-status", MFD_CLOEXEC)),
      slots_(MAP_FAILED) {
  const auto size = sizeof(Slot) * static_cast<size_t>(num_ranks);
  if (fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(size)) == 0) {
    slots_ = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_, 0);
  }
  TANDEM_CHECK(slots_ != MAP_FAILED, "no memory for the status of ranks");
}

StatusBoard::~StatusBoard() {
  munmap(slots_, sizeof(Slot) * static_cast<size_t>(num_ranks_));
  close(fd_);
}

Variables StatusBoard::variables() const {
  return {
      {kStatusVariable,
       "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_)}};
}

std::vector<RankStatus> StatusBoard::read() const {
  std::vector<RankStatus> statuses;
  for (int local = 0; local < num_ranks_; ++local) {
    statuses.push_back(status_of(
        copy_of(static_cast<const Slot*>(slots_)[local]), first_rank_ + local));
    statuses.back().host = host_name();
  }
  return statuses;
}

void report_activity(Activity activity) {
  write_report([&](Report& report) { report.activity = activity; });
}

void report_step(int64_t epoch, int64_t step) {
  write_report([&](Report& report) {
    report.epoch = epoch;
    report.step = step;
    report.step_at = now_ns();
  });
}

void report_values(double loss, double learning_rate, double samples_per_second) {
  write_report([&](Report& report) {
    report.loss = loss;
    report.learning_rate = learning_rate;
    report.samples_per_second = samples_per_second;
  });
}

void report_checkpoint(int64_t step) {
  write_report([&](Report& report) {
    report.checkpoint_step = step;
    report.checkpoint_at = now_ns();
  });
}

ReportedWait::ReportedWait(
    const char* operation, int64_t number, const std::string& label)
    : reports_(false) {
  const Slot* own = own_slot();
  if (own == nullptr || own->report.waiting_since != 0) {
    return;
  }
  reports_ = true;
  write_report([&](Report& report) {
    copy_text(report.operation, operation);
    copy_text(report.label, label.c_str());
    report.number = number;
    report.waiting_since = now_ns();
  });
}

ReportedWait::~ReportedWait() {
  if (reports_) {
    write_report([](Report& report) { report.waiting_since = 0; });
  }
}

}  // namespace tandem
