// Launchers of a run whose hosts may change. All of them are on this machine, at a
// loopback address that only this process uses.

#include <gmock/gmock.h>

#include <map>
#include <memory>

#include "launching.h"

namespace tandem::elastic_hosts_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ElasticHosts : public testing::Test {
 protected:
  // Starts the launcher of a host, with one rank. The rank appends a line with the
  // number of the attempt and of the ranks to starts(RANK), and exits with 75 when it
  // is stopped.
  void start(int host, const Words& flags = {}) {
    Words command = {
        "sh",
        "-c",
        "exec \"$@\" 2>> " + errors_file(host),
        "sh",
        helper(),
        "launch",
        "--nnodes",
        "3",
        "--min-nnodes",
        "2",
        "--node-rank",
        std::to_string(host),
        "--master-addr",
        address_,
        "--master-port",
        "29500"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(
        command.end(), {"sh", "-c",
                        "trap 'exit 75' TERM; echo $TANDEM_ATTEMPT $WORLD_SIZE >> " +
                            starts_file("$RANK") + "; while :; do sleep 0.1; done"});
    launchers_[host] = std::make_unique<Process>(ProcessOptions{command, {}, false});
  }
  void send(int host, int number) {
    launchers_.at(host)->signal(number);
  }
  ExitStatus wait(int host) {
    return launchers_.at(host)->wait();
  }
  // Waits until the launcher of a host has printed a text.
  void wait_until_printed(int host, const std::string& text) {
    EXPECT_TRUE(eventually([&] {
      return errors_of(host).find(text) != std::string::npos;
    })) << errors_of(host);
  }
  // Waits until a rank has started `count` times. Returns the last line that it wrote.
  std::string start_of(int rank, size_t count) {
    const auto path = starts_file(std::to_string(rank));
    Words lines;
    for (int tries = 0; tries < 6 && lines.size() < count; ++tries) {
      eventually([&] {
        lines = file_exists(path) ? sorted_lines(read_file(path)) : Words();
        return lines.size() >= count;
      });
    }
    EXPECT_EQ(lines.size(), count) << errors_of(0);
    return lines.empty() ? "" : lines.back();
  }
  std::string errors_of(int host) const {
    return read_file(errors_file(host));
  }

 private:
  std::string errors_file(int host) const {
    return scratch_ / ("errors" + std::to_string(host));
  }
  std::string starts_file(const std::string& rank) const {
    return scratch_ / "starts" + rank;
  }

  const Scratch scratch_;
  const std::string address_ = "127.1." + std::to_string(getpid() / 250 % 250) + "." +
                               std::to_string(getpid() % 250 + 1);
  std::map<int, std::unique_ptr<Process>> launchers_;
};

TEST_F(ElasticHosts, ContinueWhenAnotherHostIsStopped) {
  for (const int host : {0, 1, 2}) {
    start(host);
  }
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(start_of(rank, 1), "0 3");
  }
  send(1, SIGTERM);
  EXPECT_EQ(wait(1).code, 75) << errors_of(1);
  EXPECT_THAT(errors_of(1), HasSubstr("stopped by SIGTERM; host 1 has left the run"));
  EXPECT_EQ(start_of(0, 2), "1 2");
  EXPECT_EQ(start_of(1, 2), "1 2");
  send(0, SIGTERM);
  for (const int host : {0, 2}) {
    EXPECT_EQ(wait(host).code, 75) << errors_of(host);
    EXPECT_THAT(
        errors_of(host),
        HasSubstr(
            "host 1 left, so the ranks start again on the other hosts (start 2)"));
  }
}

TEST_F(ElasticHosts, WaitForOthersIfTooFewRemain) {
  start(0);
  start(1);
  start_of(1, 1);
  send(1, SIGTERM);
  EXPECT_EQ(wait(1).code, 75) << errors_of(1);
  start(2);
  EXPECT_EQ(start_of(1, 2), "1 2");
  // The signal arrives between two attempts.
  send(2, SIGTERM);
  EXPECT_EQ(wait(2).code, 75) << errors_of(2);
  wait_until_printed(0, "host 2 left");
  send(0, SIGTERM);
  EXPECT_EQ(wait(0).code, 75) << errors_of(0);
}

TEST_F(ElasticHosts, EndIfHost0IsStoppedBetweenTwoStarts) {
  for (const int host : {0, 1, 2}) {
    start(host, {"--nnodes", "4", "--min-nnodes", "3"});
  }
  for (const int rank : {0, 1, 2}) {
    start_of(rank, 1);
  }
  send(1, SIGTERM);
  EXPECT_EQ(wait(1).code, 75) << errors_of(1);
  wait_until_printed(0, "2 of at least 3 hosts have joined");
  send(0, SIGTERM);
  EXPECT_EQ(wait(0).code, 75) << errors_of(0);
  EXPECT_EQ(wait(2).code, 75) << errors_of(2);
  EXPECT_THAT(errors_of(2), HasSubstr("host 0 ended the run before the ranks started"));
}

TEST_F(ElasticHosts, RefuseAHostThatDiffers) {
  const Words flags = {"--identity", "a"};
  start(0, flags);
  start(1, flags);
  start_of(1, 1);
  start(2, {"--identity", "b"});
  EXPECT_EQ(wait(2).code, 2) << errors_of(2);
  const auto refused = AllOf(
      HasSubstr("[launch] host 2 on "),
      HasSubstr(" is refused: identity is b, expected a\n"));
  EXPECT_THAT(errors_of(2), refused);
  wait_until_printed(0, "is refused");
  EXPECT_THAT(errors_of(0), refused);
  send(0, SIGTERM);
  EXPECT_EQ(wait(0).code, 75) << errors_of(0);
  // The other hosts have not started again.
  EXPECT_EQ(start_of(0, 1), "0 2");
}

// The ranks of host 0 save when its launcher ends them, but the run was not asked to
// stop.
TEST_F(ElasticHosts, RestartAfterALauncherWasSuspended) {
  const Words flags = {"--nnodes",  "2", "--min-nnodes",   "0",
                       "--timeout", "2", "--max-restarts", "3"};
  start(0, flags);
  start(1, flags);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(start_of(rank, 1), "0 2");
  }
  send(1, SIGSTOP);
  wait_until_printed(0, "restart 1 of 3");
  send(1, SIGCONT);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(start_of(rank, 2), "1 2");
  }
  EXPECT_THAT(
      errors_of(0), AllOf(
                        HasSubstr(" and host 1 on "), HasSubstr("have had no contact "
                                                                "for 2 s")));
  EXPECT_THAT(errors_of(1), HasSubstr("trying to join the next start"));
  send(0, SIGTERM);
  for (const int host : {0, 1}) {
    EXPECT_EQ(wait(host).code, 75) << errors_of(host);
  }
}

TEST_F(ElasticHosts, ExcludeAHostThatEndsAgainAndAgain) {
  // The launcher expects that these ranks report steps.
  const Words flags = {"--fork-server", helper(), "exec"};
  start(0, flags);
  for (const size_t count : {1, 2, 3}) {
    start(1, flags);
    start_of(1, count);
    send(1, SIGKILL);
    EXPECT_EQ(wait(1).signal, SIGKILL);
    wait_until_printed(0, "(start " + std::to_string(count + 1) + ")");
  }
  start(1, flags);
  EXPECT_EQ(wait(1).code, 1) << errors_of(1);
  EXPECT_THAT(errors_of(1), HasSubstr("host 1 is excluded from the run"));
  EXPECT_THAT(
      errors_of(0), AllOf(
                        HasSubstr("(start 4); host 1 is excluded, because it caused 3 "
                                  "starts in succession without a step"),
                        Not(HasSubstr("(start 3); host"))));
  start(2, flags);
  EXPECT_EQ(start_of(0, 4), "3 2");
  send(0, SIGTERM);
  EXPECT_EQ(wait(0).code, 75) << errors_of(0);
  EXPECT_EQ(wait(2).code, 75) << errors_of(2);
}

}  // namespace tandem::elastic_hosts_test
