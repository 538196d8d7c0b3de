#include "tandem/comm/join/spawn.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/lost_pages.h"
#include "tandem/base/output.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/launcher.h"

namespace tandem {

namespace {

// Environment variable of a rank that identifies the call of spawn() that started it.
constexpr const char* kCallVariable = "TANDEM_SPAWN";

// Describes a call of spawn(). The parent's process id distinguishes ranks from
// programs that a rank starts.
std::string describe_call(int call, pid_t parent) {
  return "call " + std::to_string(call) + " of process " + std::to_string(parent);
}

bool is_rank() {
  return ends_with(
      get_env(kCallVariable).value_or(""), " of process " + std::to_string(getppid()));
}

// Returns the number of this call of spawn() in the process, from 1.
int count_calls() {
  static int calls = 0;
  return ++calls;
}

// Returns the path of this program and its arguments.
std::vector<std::string> own_command() {
  const std::string words = read_file("/proc/self/cmdline");
  std::vector<std::string> command;
  for (size_t at = 0; at < words.size();) {
    const size_t end = words.find('\0', at);
    command.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  command.at(0) = executable_path();
  return command;
}

// launch_ranks() blocks signals and makes this process a subreaper. This object
// restores the earlier state of both, because the program continues.
class LaunchInsideProgram {
 public:
  LaunchInsideProgram() {
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper_);
  }
  ~LaunchInsideProgram() {
    // A SIGPIPE is pending if the reader of the ranks' output has closed the stream.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    sigtimedwait(&pipe, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    prctl(PR_SET_CHILD_SUBREAPER, subreaper_);
  }
  LaunchInsideProgram(const LaunchInsideProgram&) = delete;
  LaunchInsideProgram& operator=(const LaunchInsideProgram&) = delete;

 private:
  sigset_t mask_{};
  int subreaper_ = 0;
};

void check(int num_ranks) {
  if (num_ranks < 1) {
    throw ConfigError(
        "[spawn] the number of ranks is " + std::to_string(num_ranks) +
        ", expected 1 or more; change it");
  }
  const auto env = read_rank_env();
  if (env && env->world_size > 1) {
    throw ConfigError(
        "[spawn] this process is rank " + std::to_string(env->rank) + " of " +
        std::to_string(env->world_size) +
        " already; call join_run(), or start the program without a launcher");
  }
}

void start_ranks(int num_ranks, int call, const SpawnOptions& options) {
  check(num_ranks);
  LaunchOptions launching;
  launching.command = own_command();
  launching.nproc_per_node = num_ranks;
  launching.nnodes = options.nnodes;
  launching.node_rank = options.node_rank;
  launching.master_addr = options.master_addr;
  launching.master_port = options.master_port;
  launching.prefix_output = options.prefix_output;
  launching.first_rank_owns_terminal = !options.prefix_output;
  launching.grace_seconds = options.grace_seconds;
  launching.timeout_seconds =
      static_cast<double>(options.join.timeout().count()) / 1000;
  launching.backend = name_of(options.join.backend);
  launching.token = token_options(options.join);
  launching.listen_all = options.join.listen_all;
  launching.variables = {{kCallVariable, describe_call(call, getpid())}};
  const LaunchInsideProgram inside;
  launch_ranks(launching);
}

JoinedRun join_as_rank(int num_ranks, const SpawnOptions& options) {
  const auto env = read_rank_env();
  TANDEM_CHECK(env, "TANDEM_SPAWN is set, but RANK is not");
  if (env->local_world_size != num_ranks) {
    throw ConfigError(
        "[spawn] the number of ranks is " + std::to_string(num_ranks) + " in rank " +
        std::to_string(env->rank) + ", expected " +
        std::to_string(env->local_world_size) +
        " as in the parent; give every process the same number");
  }
  return join_run(*env, options.join);
}

[[noreturn]] void run_as_rank(
    int num_ranks, const std::function<void(Communicator&)>& body,
    const SpawnOptions& options) {
  int code = 0;
  // Declared here, so that it is destroyed after an error was reported. Leaving the
  // group may end the other ranks, and the launcher then ends this rank.
  std::optional<JoinedRun> run;
  const auto report = [](const std::exception& error) {
    if (!report_to_launcher(error)) {
      log_error(first_line(error));
    }
  };
  on_lost_page(report);
  try {
    run.emplace(join_as_rank(num_ranks, options));
    body(*run->comm);
  } catch (const std::exception& error) {
    code = exit_code(error);
    report(error);
  }
  run.reset();
  std::exit(code);
}

}  // namespace

void spawn(
    int num_ranks, const std::function<void(Communicator&)>& body,
    const SpawnOptions& options) {
  reserve_standard_streams();
  const int call = count_calls();
  if (!is_rank()) {
    start_ranks(num_ranks, call, options);
  } else if (get_env(kCallVariable) == describe_call(call, getppid())) {
    run_as_rank(num_ranks, body, options);
  }
}

}  // namespace tandem
