#include "tandem/launch/supervisor.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/output.h"
#include "tandem/base/process.h"
#include "tandem/base/signals.h"

namespace tandem {

namespace {

constexpr int kPollMs = 100;
// Maximum number of reads of 16 KiB from one pipe before the next pipe is read.
// Together, they read more than a pipe can contain.
constexpr int kReadsPerTurn = 64;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    // Leaves out an ignored SIGHUP, because a signalfd receives a blocked signal even
    // if the signal is ignored.
    if (number != SIGHUP || !ignores_hangup()) {
      sigaddset(&set, number);
    }
  }
  return set;
}

std::set<pid_t> children_of_this_thread() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  std::set<pid_t> children;
  for (pid_t pid = 0; file >> pid;) {
    children.insert(pid);
  }
  return children;
}

// Returns whether a process handles, blocks or ignores a signal. A process that blocks
// all signals does so only for a moment, for example a shell that starts a program.
bool accepts_signal(pid_t pid, int number) {
  const auto has = [](uint64_t mask, int signal) {
    return (mask >> (signal - 1) & 1) != 0;
  };
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  bool accepts = false;
  for (std::string name; file >> name;) {
    uint64_t mask = 0;
    if (name == "SigBlk:" || name == "SigIgn:" || name == "SigCgt:") {
      file >> std::hex >> mask;
      const bool for_a_moment = name == "SigBlk:" && has(mask, SIGSEGV);
      accepts = accepts || (has(mask, number) && !for_a_moment);
    }
  }
  return accepts;
}

// Kills processes that ranks started and that outlived the ranks. They have become
// children of this process, which is a subreaper. `others`: children that are not
// killed. Adds orphans that cannot end.
void kill_orphans(std::set<pid_t> others) {
  for (int round = 0; round < 100; ++round) {
    bool any = false;
    for (const pid_t pid : children_of_this_thread()) {
      if (others.count(pid) == 0) {
        any = true;
        if (!kill_child(pid)) {
          others.insert(pid);
        }
      }
    }
    if (!any) {
      return;
    }
  }
}

}  // namespace

Supervisor::Supervisor(double grace_seconds, double stop_grace_seconds)
    : grace_seconds_(grace_seconds),
      stop_grace_seconds_(stop_grace_seconds),
      output_(STDOUT_FILENO),
      errors_(STDERR_FILENO),
      others_(children_of_this_thread()) {
  sigset_t set = watched_signals();
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  // If SIGPIPE is blocked, a write fails with EPIPE when the reader of the output has
  // exited.
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  TANDEM_CHECK(signal_fd_ >= 0, "no signalfd");
}

Supervisor::~Supervisor() {
  close(signal_fd_);
}

void Supervisor::add(
    int rank, Process process, StreamOptions output_options,
    StreamOptions error_options) {
  Stream output{process.output_fd(), StreamSink(output_, std::move(output_options))};
  Stream error{process.error_fd(), StreamSink(errors_, std::move(error_options))};
  children_.push_back({rank, std::move(process), std::move(output), std::move(error)});
}

std::vector<Supervisor::Ending> Supervisor::run(
    const std::function<bool(bool failed)>& must_end) {
  std::vector<Ending> endings;
  while (endings.size() < children_.size()) {
    serve();
    for (auto& child : children_) {
      forward(child.output, false);
      forward(child.error, false);
    }
    reap(endings, must_end);
    enforce_grace();
    leave_ranks(endings);
  }
  auto others = others_;
  for (const auto& ending : endings) {
    if (!ending.left.empty()) {
      others.insert(ending.pid);
    }
  }
  kill_orphans(std::move(others));
  return endings;
}

bool Supervisor::told_to_stop() {
  const int before = std::exchange(stop_signal_, 0);
  read_signals();
  const bool told = stop_signal_ != 0;
  stop_signal_ = told ? stop_signal_ : before;
  return told;
}

const Supervisor::Child& Supervisor::child_of(int rank) const {
  const auto child = std::find_if(
      children_.begin(), children_.end(),
      [&](const Child& one) { return one.rank == rank; });
  TANDEM_CHECK(child != children_.end(), "no such rank");
  return *child;
}

Supervisor::HiddenLines Supervisor::last_hidden_lines(int rank, size_t most) const {
  const Child& child = child_of(rank);
  auto errors = child.error.to.last_hidden_lines(most);
  if (!errors.empty()) {
    return {"standard error", std::move(errors)};
  }
  return {"standard output", child.output.to.last_hidden_lines(most)};
}

std::string Supervisor::last_error(int rank) const {
  return child_of(rank).error.to.last_error();
}

bool Supervisor::serve() {
  wait_for_events();
  read_signals();
  send_held_signals();
  const bool any = output_.write();
  return errors_.write() || any;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> entries = {
      {signal_fd_, POLLIN, 0}, output_.entry(), errors_.entry()};
  for (const auto& child : children_) {
    for (const auto* stream : {&child.output, &child.error}) {
      entries.push_back({stream->to.full() ? -1 : stream->from, POLLIN, 0});
    }
  }
  poll(entries.data(), entries.size(), kPollMs);
}

void Supervisor::finish_output() {
  auto last_read = Clock::now();
  while (!output_.empty() || !errors_.empty()) {
    if (serve() || stop_signal_ == 0) {
      last_read = Clock::now();
    } else if (Clock::now() - last_read > kReaderPatience) {
      return;
    }
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1 || number == SIGUSR2) {
      for (auto& child : children_) {
        child.held.insert(number);
      }
    } else if (number != SIGCHLD) {
      const bool impatient = number == SIGINT && stop_signal_ == SIGINT;
      stop_signal_ = number;
      hurry_output();
      stop_others(
          number == SIGHUP || number == SIGQUIT ? SIGTERM : number,
          stop_grace_seconds_);
      for (auto& child : children_) {
        // A suspended rank must continue before it can save.
        child.process.signal(SIGCONT);
      }
      kill_at_ = impatient ? Clock::now() : kill_at_;
    }
  }
}

void Supervisor::send_held_signals() {
  for (auto& child : children_) {
    for (const int number : {SIGUSR1, SIGUSR2}) {
      if (child.held.count(number) > 0 && accepts_signal(child.process.pid(), number)) {
        child.process.signal(number);
        child.held.erase(number);
      }
    }
  }
}

bool Supervisor::take_endings(std::vector<Ending>& endings) {
  const size_t before = endings.size();
  for (auto& child : children_) {
    if (child.ended) {
      continue;
    }
    const auto status = child.process.poll();
    if (!status) {
      continue;
    }
    child.ended = true;
    for (auto* stream : {&child.output, &child.error}) {
      forward(*stream, true);
      stream->to.finish();
    }
    // If another process sent SIGKILL to this rank, other ranks may have ended as a
    // consequence, even if they ended earlier.
    const bool by_us = status->signal == SIGKILL ? killed_ : stopping_;
    endings.push_back(
        {child.rank, child.process.pid(), *status, by_us || child.halt != Halt::none,
         child.halt});
  }
  return endings.size() > before;
}

void Supervisor::reap(
    std::vector<Ending>& endings, const std::function<bool(bool failed)>& must_end) {
  // Repeats, because a rank that ended as a consequence may be found before the rank
  // that failed first. Otherwise, the ending of the rank that failed first would be
  // recorded as stopped by the supervisor.
  while (take_endings(endings)) {
  }
  const bool failed = std::any_of(
      endings.begin(), endings.end(),
      [](const Ending& ending) { return !ending.status.ok(); });
  if ((must_end(failed) || failed) && !stopping_) {
    for (auto& child : children_) {
      // A suspended rank handles no signal but SIGKILL and SIGCONT.
      const Halt halt = child.ended ? Halt::none : halt_of(child.process.pid());
      child.halt = halt == Halt::uninterruptible ? Halt::none : halt;
      if (child.halt != Halt::none) {
        kill(child);
      }
    }
    stop_others(SIGTERM, grace_seconds_);
  }
}

void Supervisor::stop_others(int first_signal, double grace_seconds) {
  for (auto& child : children_) {
    child.process.signal(first_signal);
  }
  if (!stopping_) {
    stopping_ = true;
    output_.drop_from_now();
    errors_.drop_from_now();
    kill_at_ = Clock::now() +
               std::chrono::milliseconds(static_cast<int64_t>(grace_seconds * 1000));
  }
}

void Supervisor::enforce_grace() {
  if (stopping_ && !killed_ && Clock::now() >= kill_at_) {
    killed_ = true;
    for (auto& child : children_) {
      kill(child);
    }
  }
}

void Supervisor::kill(Child& child) {
  child.process.signal(SIGKILL);
  child.killed_at = child.killed_at.value_or(Clock::now());
}

void Supervisor::leave_ranks(std::vector<Ending>& endings) {
  for (auto& child : children_) {
    const pid_t pid = child.process.pid();
    if (!child.ended && child.killed_at && outlives_kill(pid, *child.killed_at)) {
      child.ended = true;
      child.process.leave();
      const Halt halt = halt_of(pid);
      endings.push_back({child.rank, pid, {1, 0}, true, halt, describe_left(pid)});
    }
  }
}

bool Supervisor::has_halted_rank(double seconds) {
  constexpr std::chrono::seconds kBetweenLooks{1};
  const auto now = Clock::now();
  if (now - looked_ < kBetweenLooks) {
    return false;
  }
  looked_ = now;
  bool any = false;
  for (auto& child : children_) {
    const pid_t pid = child.process.pid();
    Halt halt = child.ended ? Halt::none : halt_of(pid);
    if (halt == Halt::uninterruptible) {
      const auto before = std::exchange(child.switches, context_switches(pid));
      halt = child.switches == before ? halt : Halt::none;
    }
    // A suspended launcher makes no looks, so each look counts as one second.
    child.halted_seconds = halt == Halt::none ? 0 : child.halted_seconds + 1;
    any = any || child.halted_seconds > seconds;
  }
  return any;
}

void Supervisor::forward(Stream& stream, bool all) {
  char buffer[1 << 14];
  for (int turn = 0; turn < kReadsPerTurn && stream.from >= 0; ++turn) {
    if (stream.to.full() && !all) {
      return;
    }
    const ssize_t got = read(stream.from, buffer, sizeof(buffer));
    if (got > 0) {
      stream.to.add(buffer, static_cast<size_t>(got));
    } else {
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        stream.from = -1;
      }
      return;
    }
  }
}

}  // namespace tandem
