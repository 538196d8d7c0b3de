#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// How a process ended.
struct ExitStatus {
  int code = 0;
  // The signal that killed it, 0 when it exited by itself.
  int signal = 0;

  bool ok() const {
    return code == 0 && signal == 0;
  }
  /// "exited with code 3" or "was killed by SIGKILL".
  std::string describe() const;
};

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

/// A pipe that no other program inherits, with a read end that does not block. The
/// caller closes both.
Pipe open_pipe();

struct ProcessOptions {
  // Program (searched in PATH unless it has a slash) and arguments.
  std::vector<std::string> command;
  // Set in its environment, on top of ours; of two with one name the later wins.
  Variables variables;
  // Connect standard output and error to pipes, instead of sharing ours.
  bool pipe_output = false;
};

/// A child process in a process group of its own, started by fork and exec, or by a
/// fork server (launch/fork_server.h). The kernel kills it when the thread that started
/// it ends.
class Process {
 public:
  /// Throws ConfigError when the program does not exist or cannot be executed.
  explicit Process(const ProcessOptions& options);
  /// Takes over a child that is there, with the read ends of its pipes, or -1.
  Process(pid_t pid, int output_fd, int error_fd);
  /// Kills and reaps the process if it still runs.
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  pid_t pid() const {
    return pid_;
  }
  /// Read ends of the pipes; -1 without pipe_output. Non-blocking. Owned here.
  int output_fd() const {
    return output_fd_;
  }
  int error_fd() const {
    return error_fd_;
  }

  /// Reaps the process if it has ended. Never blocks.
  std::optional<ExitStatus> poll();
  ExitStatus wait();

  /// Sends to the process group; nothing once the process is reaped.
  void signal(int number);

 private:
  void end();

  pid_t pid_ = -1;
  int output_fd_ = -1;
  int error_fd_ = -1;
  std::optional<ExitStatus> status_;
};

struct CommandResult {
  ExitStatus status;
  std::string output;
  std::string errors;
  double seconds = 0;
};

/// Runs a command to its end and keeps what it printed; kills it after
/// `timeout_seconds` (the status then says SIGKILL).
CommandResult run_command(
    const std::vector<std::string>& command, const Variables& variables = {},
    double timeout_seconds = 600);

/// Whether a process is stopped (SIGSTOP, Ctrl-Z): it is there, but does nothing.
bool is_stopped(pid_t pid);

/// Becomes another program: the process id stays. Throws ConfigError.
[[noreturn]] void exec_program(
    const std::vector<std::string>& command, const Variables& variables);

}  // namespace tandem
