#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tests/base/test_tools.h"
#include "tests/lines.h"
#include "tests/places.h"
#include "tests/results.h"

namespace tandem {

using Words = std::vector<std::string>;

// True if ranks start from a fork server and then exec their programs. False if the
// launcher starts each rank.
inline bool by_fork_server = false;

inline Words launching(const Words& flags, const std::string& script) {
  Words command = {helper(), "launch"};
  command.insert(command.end(), flags.begin(), flags.end());
  if (by_fork_server) {
    command.insert(command.end(), {"--fork-server", helper(), "exec"});
  }
  command.insert(command.end(), {"sh", "-c", script});
  return command;
}

// Launches ranks that run a shell script. Kills the launcher after 20 s.
inline CommandResult run_launcher(
    const Words& flags, const std::string& script, const Variables& variables = {}) {
  auto result = run_command(launching(flags, script), variables, 20);
  EXPECT_NE(result.status.signal, SIGKILL) << "the launcher hangs";
  return result;
}

// Fixture for tests of the launcher. Ranks can synchronize by the named pipe $DIR/fifo:
// a reader sees the end of the pipe when the writer ends. The test parameter is the
// value of by_fork_server.
class Launch : public ::testing::TestWithParam<bool> {
 public:
  static std::string name(const ::testing::TestParamInfo<bool>& way) {
    return way.param ? "ForkServer" : "Exec";
  }

 protected:
  Launch() {
    by_fork_server = GetParam();
    mkfifo((directory_ / "fifo").c_str(), 0600);
    setenv("DIR", directory_.path().c_str(), 1);
    setenv("HELPER", helper().c_str(), 1);
  }

  // Returns the process id that a rank wrote to a file with kWritePid.
  int pid_of(int rank) const {
    return number_in(directory_ / ("pid" + std::to_string(rank)));
  }
  void expect_gone(int rank) const {
    const int pid = pid_of(rank);
    EXPECT_TRUE(eventually([&] { return !is_running(pid); })) << "rank " << rank;
  }

  Scratch directory_;
};

inline const std::string kWritePid = "echo $$ > $DIR/pid$RANK; ";

}  // namespace tandem
