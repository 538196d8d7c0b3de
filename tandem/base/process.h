#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/descriptor.h"

namespace tandem {

/// Environment variables as (name, value) pairs.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// The exit code or signal that ended a process.
struct ExitStatus {
  int code = 0;
  // Signal that killed the process, 0 if the process exited.
  int signal = 0;

  bool ok() const {
    return code == 0 && signal == 0;
  }
  /// Returns the status as text, such as "exited with code 3" or "was killed by
  /// SIGKILL".
  std::string describe() const;
};

/// Both ends of a pipe, as descriptors.
struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

/// Opens a pipe that other programs do not inherit. Reading does not block. The caller
/// closes both ends.
Pipe open_pipe();

/// Command, environment and output of a child process.
struct ProcessOptions {
  // Program (searched in PATH unless it contains a slash) and arguments.
  std::vector<std::string> command;
  // Variables added to the inherited environment. If a name occurs twice, the later
  // value is used.
  Variables variables;
  // True: standard output and error are pipes. False: the child inherits them.
  bool pipe_output = false;
  // True if the program calls catch_signals() (base/signals.h). Signals that arrive
  // before this call then stay pending and do not kill the program.
  bool holds_signals = false;
};

/// A child process with its own process group, started by fork and exec, or by a fork
/// server (launch/fork_server.h). The kernel kills the process when the thread that
/// started the process ends.
class Process {
 public:
  /// Starts the program. Throws ConfigError if the program does not exist or cannot be
  /// executed.
  explicit Process(const ProcessOptions& options);
  /// Takes ownership of a running child and of the read ends of its pipes. A descriptor
  /// of -1 means that there is no pipe.
  Process(pid_t pid, int output_fd, int error_fd);
  /// If the process still runs, kills its process group and reaps the process
  /// (kill_child()).
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  pid_t pid() const {
    return pid_;
  }
  /// Returns the read end of the pipe for standard output, which is owned by this
  /// object and non-blocking; -1 without pipe_output.
  int output_fd() const {
    return output_.fd();
  }
  /// Returns the read end of the pipe for standard error, like output_fd().
  int error_fd() const {
    return error_.fd();
  }

  /// Reaps the process if it has ended, and returns its status. Never blocks.
  std::optional<ExitStatus> poll();
  /// Waits until the process has ended, and returns its status.
  ExitStatus wait();
  /// Sends a signal to the process group. Does nothing after the process was reaped.
  void signal(int number);
  /// Makes the destructor leave a process that outlives SIGKILL.
  void leave() {
    status_ = status_.value_or(ExitStatus{1, 0});
  }

 private:
  // Kills and reaps the process if it still runs.
  void end();

  pid_t pid_ = -1;
  Descriptor output_;
  Descriptor error_;
  std::optional<ExitStatus> status_;
};

/// Status and output of a command that has ended.
struct CommandResult {
  ExitStatus status;
  std::string output;
  std::string errors;
  double seconds = 0;
};

/// Runs a command, waits for its end and returns its output. After `timeout_seconds`,
/// kills it with SIGKILL, which is then the signal in the status. Throws ConfigError if
/// the command cannot be executed.
CommandResult run_command(
    const std::vector<std::string>& command, const Variables& variables = {},
    double timeout_seconds = 600);

/// Reason why a process makes no progress.
enum class Halt {
  none,
  // Suspended by SIGSTOP, SIGTSTP or a terminal.
  stopped,
  // Frozen by its control group.
  frozen,
  // In a wait of the kernel that no signal ends, for a disk, a mount or a device.
  // Usually, such a wait is short.
  uninterruptible
};

/// Returns whether and why a process is halted now. Returns `none` if there is no such
/// process.
Halt halt_of(pid_t pid);

/// Returns a phrase such as "is suspended (SIGSTOP)"; "runs" for Halt::none.
const char* describe(Halt halt);

/// Returns whether a process is suspended (SIGSTOP, Ctrl-Z).
bool is_stopped(pid_t pid);

/// Returns the number of context switches of a process's main thread, which is constant
/// while the process is halted; 0 if there is no such process.
int64_t context_switches(pid_t pid);

/// Returns whether a process that got SIGKILL at `killed` must be left, because it
/// cannot end: after 5 s if it is halted, otherwise after 30 s.
bool outlives_kill(pid_t pid, std::chrono::steady_clock::time_point killed);

/// Returns a text such as "still runs after SIGKILL, because ...; ACTION".
std::string describe_left(pid_t pid);

/// Kills a child process by SIGKILL and reaps it. Returns its status. If the process
/// cannot end (outlives_kill()), prints a warning that names it and returns nullopt.
std::optional<ExitStatus> kill_child(pid_t pid);

/// Replaces this process with another program, which keeps the process id. Throws
/// ConfigError if the program cannot be executed.
[[noreturn]] void exec_program(
    const std::vector<std::string>& command, const Variables& variables);

}  // namespace tandem
