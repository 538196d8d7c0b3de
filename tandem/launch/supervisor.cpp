#include "tandem/launch/supervisor.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace {

constexpr int kPollMs = 100;
// Reads of 16 KiB from one pipe before the others get their turn. Together more
// than a pipe holds.
constexpr int kReadsPerTurn = 64;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGCHLD}) {
    sigaddset(&set, number);
  }
  return set;
}

void print_lines(int to, const std::string& prefix, std::string& text, bool all) {
  const size_t end = all ? text.size() : text.rfind('\n') + 1;
  std::string out;
  for (size_t at = 0; at < end;) {
    const size_t newline = std::min(text.find('\n', at), end - 1);
    out += prefix + text.substr(at, newline + 1 - at);
    at = newline + 1;
  }
  if (all && !out.empty() && out.back() != '\n') {
    out += '\n';
  }
  text.erase(0, end);
  try {
    write_all(to, out.data(), out.size(), "output");
  } catch (const DataError&) {
    // The reader of our output is gone; the ranks' work still counts.
  }
}

std::set<pid_t> children_of_this_thread() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  std::set<pid_t> children;
  for (pid_t pid = 0; file >> pid;) {
    children.insert(pid);
  }
  return children;
}

// Processes that ranks left behind have become our children (subreaper): none may stay.
void kill_orphans(const std::set<pid_t>& others) {
  for (int round = 0; round < 100; ++round) {
    bool any = false;
    for (const pid_t pid : children_of_this_thread()) {
      if (others.count(pid) == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        any = true;
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
      others_(children_of_this_thread()) {
  sigset_t set = watched_signals();
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  // The reader of our output may be gone; we notice when we write.
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  TANDEM_CHECK(signal_fd_ >= 0, "no signalfd");
}

Supervisor::~Supervisor() {
  close(signal_fd_);
}

void Supervisor::add(
    int rank, Process process, const std::string& prefix, bool prefix_output) {
  Stream output{process.output_fd(), STDOUT_FILENO, prefix_output ? prefix : "", ""};
  Stream error{process.error_fd(), STDERR_FILENO, prefix, ""};
  children_.push_back({rank, std::move(process), std::move(output), std::move(error)});
}

std::vector<Supervisor::Ending> Supervisor::run() {
  std::vector<Ending> endings;
  while (endings.size() < children_.size()) {
    wait_for_events();
    read_signals();
    for (auto& child : children_) {
      forward(child.output);
      forward(child.error);
    }
    reap(endings);
    enforce_grace();
  }
  kill_orphans(others_);
  return endings;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> entries = {{signal_fd_, POLLIN, 0}};
  for (const auto& child : children_) {
    entries.push_back({child.output.from, POLLIN, 0});
    entries.push_back({child.error.from, POLLIN, 0});
  }
  poll(entries.data(), entries.size(), kPollMs);
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1) {
      for (auto& child : children_) {
        child.process.signal(SIGUSR1);
      }
    } else if (number != SIGCHLD) {
      const bool impatient = number == SIGINT && stop_signal_ == SIGINT;
      stop_signal_ = number;
      stop_others(
          number == SIGHUP || number == SIGQUIT ? SIGTERM : number,
          stop_grace_seconds_);
      kill_at_ = impatient ? Clock::now() : kill_at_;
    }
  }
}

void Supervisor::reap(std::vector<Ending>& endings) {
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
      forward(*stream);
      print_lines(stream->to, stream->prefix, stream->line, true);
    }
    // A SIGKILL that is not ours may be the reason why others ended before.
    const bool by_us = status->signal == SIGKILL ? killed_ : stopping_;
    endings.push_back({child.rank, child.process.pid(), *status, by_us});
  }
  const bool failed = std::any_of(
      endings.begin(), endings.end(),
      [](const Ending& ending) { return !ending.status.ok(); });
  if (failed && !stopping_) {
    stop_others(SIGTERM, grace_seconds_);
  }
}

void Supervisor::stop_others(int first_signal, double grace_seconds) {
  for (auto& child : children_) {
    child.process.signal(first_signal);
  }
  if (!stopping_) {
    stopping_ = true;
    kill_at_ = Clock::now() +
               std::chrono::milliseconds(static_cast<int64_t>(grace_seconds * 1000));
  }
}

void Supervisor::enforce_grace() {
  if (stopping_ && !killed_ && Clock::now() >= kill_at_) {
    killed_ = true;
    for (auto& child : children_) {
      child.process.signal(SIGKILL);
    }
  }
}

void Supervisor::forward(Stream& stream) {
  char buffer[1 << 14];
  for (int turn = 0; turn < kReadsPerTurn && stream.from >= 0; ++turn) {
    const ssize_t got = read(stream.from, buffer, sizeof(buffer));
    if (got > 0) {
      stream.line.append(buffer, static_cast<size_t>(got));
      print_lines(stream.to, stream.prefix, stream.line, false);
    } else {
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        stream.from = -1;
      }
      return;
    }
  }
}

}  // namespace tandem
