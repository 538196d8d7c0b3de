#include "tandem/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/process_limits.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr int kReadsPerTurn = 64;

ConfigError cannot_execute(const std::string& path, int reason) {
  return ConfigError(
      "[launch] cannot execute '" + path + "': " + std::strerror(reason) +
      "; name an executable file");
}

bool is_program(const std::string& path) {
  std::error_code ignored;
  return access(path.c_str(), X_OK) == 0 &&
         std::filesystem::is_regular_file(path, ignored);
}

// argv and environment in the form that execve accepts.
class ExecImage {
 public:
  ExecImage(const std::vector<std::string>& command, const Variables& variables)
      : path_(find_program(command.at(0))), arguments_(command) {
    std::map<std::string, std::string> entries;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      entries.emplace(text.substr(0, text.find('=')), text);
    }
    for (const auto& [name, value] : variables) {
      entries[name] = name + "=" + value;
    }
    for (const auto& entry : entries) {
      environment_.push_back(entry.second);
    }
    point_to(arguments_, argv_);
    point_to(environment_, envp_);
  }

  // Calls only functions that are safe between fork and exec.
  void exec() const {
    execve(path_.c_str(), argv_.data(), envp_.data());
  }

  const std::string& path() const {
    return path_;
  }

 private:
  static std::string find_program(const std::string& name) {
    if (name.find('/') == std::string::npos) {
      for (const auto& folder : split(get_env("PATH").value_or("/usr/bin:/bin"), ':')) {
        const std::string path = folder + "/" + name;
        if (is_program(path)) {
          return path;
        }
      }
      throw ConfigError(
          "[launch] program '" + name + "' is not in PATH; name it with its path");
    }
    return name;
  }

  static void point_to(std::vector<std::string>& texts, std::vector<char*>& pointers) {
    for (auto& text : texts) {
      pointers.push_back(text.data());
    }
    pointers.push_back(nullptr);
  }

  std::string path_;
  std::vector<std::string> arguments_;
  std::vector<std::string> environment_;
  std::vector<char*> argv_;
  std::vector<char*> envp_;
};

ExitStatus to_status(int raw) {
  ExitStatus status;
  status.signal = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
  status.code = WIFEXITED(raw) ? WEXITSTATUS(raw) : 0;
  return status;
}

// Executes the program in the child process. If that fails, writes the errno to
// `failure`; otherwise exec closes `failure`.
[[noreturn]] void become(
    const ExecImage& image, pid_t parent, const Pipe& output, const Pipe& error,
    const Pipe& failure, const sigset_t& blocked) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);
  }
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  // tandem's programs ignore SIGXFSZ; other programs get the default.
  ::signal(SIGXFSZ, SIG_DFL);
  if (output.write_end >= 0) {
    dup2(output.write_end, STDOUT_FILENO);
    dup2(error.write_end, STDERR_FILENO);
  }
  image.exec();
  const int reason = errno;
  [[maybe_unused]] const auto told = write(failure.write_end, &reason, sizeof(reason));
  _exit(126);
}

std::string proc_file(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// Returns the state of a process, such as 'R', 'S' or 'T'; 'X' if there is none.
char state_of(pid_t pid) {
  std::ifstream file(proc_file(pid, "stat"));
  std::string text;
  std::getline(file, text);
  // The line is "pid (name) state", and the name may contain any characters.
  const size_t name_end = text.rfind(") ");
  return name_end == std::string::npos ? 'X' : text[name_end + 2];
}

// Returns whether a file contains a line.
bool has_line(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line == wanted) {
      return true;
    }
  }
  return false;
}

// Control groups of version 1 and 2 have different files.
bool is_frozen(pid_t pid) {
  std::ifstream file(proc_file(pid, "cgroup"));
  const std::string root = "/sys/fs/cgroup";
  // A line is "ID:CONTROLLERS:PATH".
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find('/');
    const std::string group = at == std::string::npos ? "" : line.substr(at);
    if (line.find(":freezer:") != std::string::npos &&
        has_line(root + "/freezer" + group + "/freezer.state", "FROZEN")) {
      return true;
    }
    if (line.rfind("0::", 0) == 0 &&
        (has_line(root + group + "/cgroup.events", "frozen 1") ||
         has_line(root + "/unified" + group + "/cgroup.events", "frozen 1"))) {
      return true;
    }
  }
  return false;
}

// Waits until the child executes its program. Returns 0, or the errno if exec failed.
int exec_failure(const Pipe& failure) {
  close(failure.write_end);
  int reason = 0;
  pollfd entry{failure.read_end, POLLIN, 0};
  while (poll(&entry, 1, -1) < 0 && errno == EINTR) {
  }
  const ssize_t got = read(failure.read_end, &reason, sizeof(reason));
  close(failure.read_end);
  return got == static_cast<ssize_t>(sizeof(reason)) ? reason : 0;
}

// Appends all available bytes of `fd` to `text`, at most a megabyte. Returns false at
// the end of the file.
bool drain(int fd, std::string& text) {
  char buffer[1 << 14];
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    if (got < 0) {
      return true;
    }
    text.append(buffer, static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

Pipe open_pipe() {
  int ends[2];
  TANDEM_CHECK(pipe2(ends, O_CLOEXEC) == 0, "no more pipes");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

std::string ExitStatus::describe() const {
  if (signal == 0) {
    return "exited with code " + std::to_string(code);
  }
  const char* name = sigabbrev_np(signal);
  return "was killed by " + (name == nullptr ? "signal " + std::to_string(signal)
                                             : "SIG" + std::string(name));
}

Process::Process(const ProcessOptions& options) {
  const ExecImage image(options.command, options.variables);
  Pipe output;
  Pipe error;
  if (options.pipe_output) {
    output = open_pipe();
    error = open_pipe();
  }
  const Pipe failure = open_pipe();
  const pid_t parent = getpid();
  sigset_t blocked;
  sigemptyset(&blocked);
  if (options.holds_signals) {
    blocked = caught_signals();
  }
  pid_ = fork();
  if (pid_ < 0) {
    throw Error(explain_process_limit());
  }
  if (pid_ == 0) {
    become(image, parent, output, error, failure, blocked);
  }
  setpgid(pid_, pid_);
  if (options.pipe_output) {
    close(output.write_end);
    close(error.write_end);
    output_ = Descriptor(output.read_end);
    error_ = Descriptor(error.read_end);
  }
  if (const int reason = exec_failure(failure); reason != 0) {
    end();
    throw cannot_execute(image.path(), reason);
  }
}

Process::Process(pid_t pid, int output_fd, int error_fd)
    : pid_(pid), output_(output_fd), error_(error_fd) {}

Process::~Process() {
  end();
}

void Process::end() {
  if (pid_ > 0 && !status_) {
    signal(SIGKILL);
    status_ = kill_child(pid_);
  }
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      status_(other.status_) {}

std::optional<ExitStatus> Process::poll() {
  int raw = 0;
  if (!status_ && waitpid(pid_, &raw, WNOHANG) == pid_) {
    status_ = to_status(raw);
  }
  return status_;
}

ExitStatus Process::wait() {
  int raw = 0;
  while (!status_) {
    if (waitpid(pid_, &raw, 0) == pid_) {
      status_ = to_status(raw);
    } else if (errno != EINTR) {
      status_ = ExitStatus{1, 0};
    }
  }
  return *status_;
}

void Process::signal(int number) {
  if (pid_ > 0 && !status_) {
    kill(-pid_, number);
  }
}

CommandResult run_command(
    const std::vector<std::string>& command, const Variables& variables,
    double timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  CommandResult result;
  Process process({command, variables, true});
  bool output_open = true;
  bool error_open = true;
  while (output_open || error_open || !process.poll()) {
    pollfd entries[2] = {
        {output_open ? process.output_fd() : -1, POLLIN, 0},
        {error_open ? process.error_fd() : -1, POLLIN, 0}};
    // If both pipes are closed, the process will end soon, so the interval is shorter.
    poll(entries, 2, output_open || error_open ? 100 : 1);
    output_open = output_open && drain(process.output_fd(), result.output);
    error_open = error_open && drain(process.error_fd(), result.errors);
    if (elapsed() > timeout_seconds) {
      process.signal(SIGKILL);
      break;
    }
  }
  result.status = process.wait();
  result.seconds = elapsed();
  return result;
}

bool is_stopped(pid_t pid) {
  return state_of(pid) == 'T';
}

Halt halt_of(pid_t pid) {
  switch (state_of(pid)) {
    case 'T':
      return Halt::stopped;
    case 'D':
      return is_frozen(pid) ? Halt::frozen : Halt::uninterruptible;
    case 'S':
      return is_frozen(pid) ? Halt::frozen : Halt::none;
    default:
      return Halt::none;
  }
}

const char* describe(Halt halt) {
  switch (halt) {
    case Halt::stopped:
      return "is suspended (SIGSTOP)";
    case Halt::frozen:
      return "is frozen by its control group";
    case Halt::uninterruptible:
      return "is in an uninterruptible wait for a disk, mount or device";
    default:
      return "runs";
  }
}

int64_t context_switches(pid_t pid) {
  std::ifstream file(proc_file(pid, "status"));
  int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("_ctxt_switches:");
    if (at != std::string::npos) {
      sum += std::atoll(line.c_str() + line.find(':') + 1);
    }
  }
  return sum;
}

bool outlives_kill(pid_t pid, std::chrono::steady_clock::time_point killed) {
  constexpr auto kHalted = std::chrono::seconds(5);
  constexpr auto kRunning = std::chrono::seconds(30);
  const auto time = std::chrono::steady_clock::now() - killed;
  return time >= kRunning || (time >= kHalted && halt_of(pid) != Halt::none);
}

std::string describe_left(pid_t pid) {
  const Halt halt = halt_of(pid);
  const char* action = halt == Halt::frozen ? "thaw the group"
                       : halt == Halt::none ? "check the process"
                                            : "repair the disk, mount or device";
  return "still exists after SIGKILL, because it " + std::string(describe(halt)) +
         "; " + action + " to end it";
}

std::optional<ExitStatus> kill_child(pid_t pid) {
  const auto killed = std::chrono::steady_clock::now();
  kill(pid, SIGKILL);
  int raw = 0;
  pid_t ended = 0;
  while ((ended = waitpid(pid, &raw, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
    if (outlives_kill(pid, killed)) {
      log_warning("[launch] process " + std::to_string(pid) + " " + describe_left(pid));
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ended == pid ? to_status(raw) : ExitStatus{1, 0};
}

void exec_program(const std::vector<std::string>& command, const Variables& variables) {
  const ExecImage image(command, variables);
  image.exec();
  throw cannot_execute(image.path(), errno);
}

}  // namespace tandem
