#include "tandem/launch/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/process_limits.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/store/socket.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Variable with the descriptor of the server's end of the socket.
constexpr const char* kSocketVariable = "TANDEM_FORK_SERVER";
// Largest request for a rank: "NAME=value\0" for each variable. The message also passes
// the write ends of the rank's pipes, if it has pipes.
constexpr size_t kRequestBytes = 1 << 16;
constexpr int kServerPollMs = 100;

using Streams = std::array<int, 2>;
constexpr Streams kNoStreams = {-1, -1};

// Answer to a request: the process of the new rank, or the errno of a failed fork.
struct Answer {
  pid_t pid;
  int reason;
};

union StreamsControl {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(Streams))];
};

void send_request(int socket, const Variables& variables, const Streams& streams) {
  std::string text;
  for (const auto& [name, value] : variables) {
    text.append(name).append("=").append(value).push_back('\0');
  }
  TANDEM_CHECK(text.size() <= kRequestBytes, "a rank's variables are too long");
  iovec part{text.data(), text.size()};
  StreamsControl control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (streams != kNoStreams) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(Streams));
    std::memcpy(CMSG_DATA(&control.header), streams.data(), sizeof(Streams));
  }
  // If the server has ended, receive_pid() reports it.
  sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Receives the variables and pipes of a rank. Returns false after the last request.
bool receive_request(int socket, std::string& text, Streams& streams) {
  text.resize(kRequestBytes);
  iovec part{text.data(), text.size()};
  StreamsControl control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  streams = kNoStreams;
  if (CMSG_FIRSTHDR(&message) != nullptr) {
    std::memcpy(streams.data(), CMSG_DATA(&control.header), sizeof(Streams));
  }
  return got > 0;
}

void close_both(const Streams& streams) {
  for (const int fd : streams) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

// `entries`: "NAME=value\0" for each variable.
void set_variables(const std::string& entries) {
  for (const auto& entry : split(entries, '\0')) {
    const size_t at = entry.find('=');
    if (at != std::string::npos) {
      setenv(entry.substr(0, at).c_str(), entry.c_str() + at + 1, 1);
    }
  }
}

void redirect_output(const Streams& streams) {
  if (streams != kNoStreams) {
    dup2(streams[0], STDOUT_FILENO);
    dup2(streams[1], STDERR_FILENO);
    close_both(streams);
  }
}

// Waits until the server has ended. `server_lives`: read end of a pipe whose write end
// only the server has.
void wait_until_server_ended(int server_lives, pid_t server) {
  char nothing = 0;
  while (read(server_lives, &nothing, 1) < 0 && errno == EINTR) {
  }
  close(server_lives);
  // The pipe closes shortly before the kernel changes the parent of this process.
  while (getppid() == server) {
    sched_yield();
  }
}

// Makes the kernel kill this process when the launcher ends. Exits if it has already
// ended.
void die_with(pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) {
    _exit(127);
  }
}

Error ended_early(const std::string& program, const ExitStatus& status) {
  return Error(
      "[launch] '" + program + "' " + status.describe() + " before it was loaded");
}

using Check = std::function<void(pid_t loader)>;

// Receives the server's answer and returns the process id of the rank.
pid_t receive_pid(
    int socket, Process& server, const std::string& program, const Check& check) {
  pollfd entry{socket, POLLIN, 0};
  while (poll(&entry, 1, kServerPollMs) <= 0) {
    check(server.pid());
  }
  Answer answer{};
  if (recv(socket, &answer, sizeof(answer), 0) != sizeof(answer)) {
    throw ended_early(program, server.wait());
  }
  if (answer.reason == EAGAIN) {
    throw Error(explain_process_limit());
  }
  if (answer.reason != 0) {
    throw Error(
        "[launch] cannot make another process: " +
        std::string(std::strerror(answer.reason)) + "; start fewer ranks with --nproc");
  }
  return answer.pid;
}

// Waits for the end of the server, which closes its end of the socket. The ranks then
// run, so `check` may no longer end them.
ExitStatus wait_for(Process& server, int socket, const Check& check) {
  pollfd entry{socket, POLLIN, 0};
  while (!server.poll()) {
    if (poll(&entry, 1, kServerPollMs) > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      check(server.pid());
    }
  }
  return server.wait();
}

}  // namespace

std::vector<Process> fork_ranks(
    const std::vector<ProcessOptions>& ranks, const Check& check) {
  const std::string program = ranks.at(0).command.at(0);
  // Declared before the server, so that it is destroyed after the server. The server is
  // the ranks' parent until it ends, and does not reap them.
  std::vector<Process> processes;
  int ends[2];
  TANDEM_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no more sockets");
  const Socket socket(ends[0]);
  Socket inherited(ends[1]);
  fcntl(socket.fd(), F_SETFD, FD_CLOEXEC);
  ProcessOptions options = ranks[0];
  options.variables.emplace_back(kSocketVariable, std::to_string(inherited.fd()));
  options.pipe_output = false;
  Process server(options);
  inherited = Socket();
  for (const auto& rank : ranks) {
    // Ends of the pipes for standard output and error.
    Socket from[2];
    Socket to[2];
    for (size_t i = 0; rank.pipe_output && i < 2; ++i) {
      const Pipe pipe = open_pipe();
      from[i] = Socket(pipe.read_end);
      to[i] = Socket(pipe.write_end);
    }
    send_request(socket.fd(), rank.variables, {to[0].fd(), to[1].fd()});
    const pid_t pid = receive_pid(socket.fd(), server, program, check);
    processes.emplace_back(pid, from[0].release(), from[1].release());
  }
  shutdown(socket.fd(), SHUT_WR);
  if (const auto status = wait_for(server, socket.fd(), check); !status.ok()) {
    throw ended_early(program, status);
  }
  return processes;
}

void serve_as_fork_server() {
  const auto variable = get_env(kSocketVariable);
  if (!variable) {
    return;
  }
  const int socket = parse_number<int>(*variable).value_or(-1);
  unsetenv(kSocketVariable);
  const pid_t launcher = getppid();
  const pid_t server = getpid();
  const Pipe lives = open_pipe();
  fcntl(lives.read_end, F_SETFL, 0);
  std::string entries;
  Streams streams;
  while (receive_request(socket, entries, streams)) {
    const pid_t pid = fork();
    if (pid == 0) {
      close(socket);
      close(lives.write_end);
      set_variables(entries);
      redirect_output(streams);
      const auto name = "tandem-rank-" + get_env("RANK").value_or("");
      prctl(PR_SET_NAME, name.c_str());
      // The rank must outlive the server, so it calls die_with() only after the
      // launcher has become its parent.
      wait_until_server_ended(lives.read_end, server);
      die_with(launcher);
      return;
    }
    const Answer answer{pid, pid < 0 ? errno : 0};
    setpgid(pid, pid);
    close_both(streams);
    send(socket, &answer, sizeof(answer), MSG_NOSIGNAL);
  }
  _exit(0);
}

}  // namespace tandem
