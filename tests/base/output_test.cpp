#include "tandem/base/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>

#include "tandem/base/log.h"
#include "tandem/base/signals.h"
#include "tests/base/stalled_pipe.h"
#include "tests/base/test_tools.h"

namespace tandem::output_test {

// Writes until there is no room. Returns the number of bytes written.
size_t fill(Outlet& outlet) {
  const std::string block(10'000, 'x');
  size_t taken = 0;
  for (ssize_t got = 0; (got = outlet.write_now(block.data(), block.size())) > 0;) {
    taken += static_cast<size_t>(got);
  }
  return errno == EAGAIN ? taken : 0;
}

TEST(Outlet, NeverBlocksOnAPipeAndKeepsItsModeForOthers) {
  const StalledPipe pipe;
  Outlet outlet(pipe.write_end());
  EXPECT_GE(fill(outlet), 60'000u);
  EXPECT_EQ(fcntl(pipe.write_end(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_GE(pipe.read().size(), 60'000u);
  EXPECT_GE(fill(outlet), 60'000u);
}

TEST(Outlet, NeverBlocksOnASocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  {
    Outlet outlet(ends[0]);
    EXPECT_GE(fill(outlet), 10'000u);
  }
  EXPECT_EQ(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
  close(ends[0]);
  close(ends[1]);
}

// Like a pipe of another user.
TEST(Outlet, NeverBlocksOnAPipeThatItCannotReopen) {
  const StalledPipe pipe;
  const int code = code_of_child([&] {
    // Root may open a file of any mode.
    const bool closed =
        fchmod(pipe.write_end(), 0) == 0 && (geteuid() != 0 || setuid(65534) == 0);
    Outlet outlet(pipe.write_end());
    const bool is_own = outlet.fd() == pipe.write_end();
    return closed && is_own && fill(outlet) >= 60'000u ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(Outlet, AppendsAtTheFilesPosition) {
  const Scratch dir;
  const int fd = open((dir / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(fd, "one ", 4), 4);
  EXPECT_EQ(write_output(fd, "two "), 0);
  ASSERT_EQ(write(fd, "three", 5), 5);
  close(fd);
  EXPECT_EQ(read_file(dir / "out"), "one two three");
}

// Returns the code of a process that prints to a stalled pipe after `stop`.
int code_of_stalled(const std::function<void()>& stop) {
  const StalledPipe pipe;
  return code_of_child([&] {
    dup2(pipe.write_end(), STDOUT_FILENO);
    dup2(pipe.write_end(), STDERR_FILENO);
    Outlet outlet(STDOUT_FILENO);
    fill(outlet);
    stop();
    const int lost = print_now(stdout, "lost\n");
    log_error("lost");
    return lost;
  });
}

TEST(StalledReader, DoesNotDelayAProcessThatIsToStop) {
  EXPECT_EQ(
      code_of_stalled([] {
        catch_signals();
        kill(getpid(), SIGTERM);
      }),
      ETIMEDOUT);
}

TEST(StalledReader, DoesNotDelayAProcessThatGetsAStopSignal) {
  EXPECT_EQ(
      code_of_stalled([] {
        catch_signals();
        const pid_t self = getpid();
        if (fork() == 0) {
          usleep(100'000);
          kill(self, SIGTERM);
          _exit(0);
        }
      }),
      ETIMEDOUT);
}

TEST(StalledReader, DoesNotDelayAProcessWithAPendingStopSignal) {
  EXPECT_EQ(
      code_of_stalled([] {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, nullptr);
        raise(SIGTERM);
      }),
      ETIMEDOUT);
}

TEST(StalledReader, GetsEverythingIfItContinuesToRead) {
  const StalledPipe pipe;
  const std::string text(1'000'000, 'x');
  const pid_t child = fork();
  if (child == 0) {
    _exit(write_output(pipe.write_end(), text));
  }
  std::string all;
  EXPECT_TRUE(eventually([&] {
    all += pipe.read();
    return all.size() == text.size();
  }));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace tandem::output_test
