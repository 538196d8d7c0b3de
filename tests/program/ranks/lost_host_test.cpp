// A run on several hosts that loses ranks, launchers or the network: all hosts end with
// the same error.

#include <gmock/gmock.h>
#include <signal.h>

#include <functional>
#include <future>
#include <thread>

#include "hosts.h"
#include "tests/base/test_tools.h"
#include "workers.h"

namespace tandem::lost_host_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class LostHost : public testing::Test {
 protected:
  // Trains on `count` hosts and disturbs the run. Returns the result of each host.
  std::vector<CommandResult> disturb(
      const Hosts& hosts, int count, int ranks_each, const std::function<void()>& act,
      const std::string& timeout_seconds = "10") {
    auto runs = std::async(std::launch::async, [&] {
      return run_together(count, [&](int host) {
        return hosts.run(
            host, with(
                      training(hosts, host, count, ranks_each),
                      {"--timeout-seconds", timeout_seconds}));
      });
    });
    wait_until_it_reports(out(0));
    EXPECT_TRUE(has_reported(out(0)));
    act();
    return runs.get();
  }

  std::string out(int host) const {
    return scratch_ / ("run" + std::to_string(host));
  }
  std::vector<pid_t> ranks_of(int host) const {
    return workers_of(out(host));
  }
  pid_t launcher_of(int host) const {
    const auto ranks = ranks_of(host);
    return ranks.empty() ? 0 : parent_of_process(ranks.front());
  }

  static void expect_same_line(const std::vector<CommandResult>& results) {
    for (const auto& result : results) {
      expect_error_line(result, 1, {});
      EXPECT_EQ(result.errors, results[0].errors);
    }
  }

 private:
  std::vector<std::string> training(
      const Hosts& hosts, int host, int count, int ranks_each) const {
    return with(
        {"train", "--model", "simplenet", "--epochs", "100000", "--log-every", "1",
         "--out", out(host)},
        hosts.flags_of(host, ranks_each, count));
  }

  const Scratch scratch_;
};

TEST_F(LostHost, BothSidesOfAPartitionNameBothHosts) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto results = disturb(hosts, 3, 1, [&] { hosts.unplug(2); });
  expect_same_line(results);
  expect_parts(
      results[0].errors, {"host 0 at 10.77.0.1 with rank 0", "host 2 on ",
                          "with rank 2 have had no contact for 10 s"});
}

TEST_F(LostHost, ABrokenLinkBetweenOtherHostsNamesBoth) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto results = disturb(
      hosts, 3, 1, [&] { hosts.cut(1, 2); }, "60");
  for (const auto& result : results) {
    EXPECT_EQ(result.status.code, 1);
    EXPECT_EQ(
        lines_with(result.errors, "tandem: error: "),
        std::vector<std::string>{
            "tandem: error: [launch] host 1 at 10.77.0.2 and host 2 at 10.77.0.3 have "
            "had no contact for 11 s; check the network between them"});
  }
}

TEST_F(LostHost, AKilledRankIsNamedOnEveryHost) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  pid_t victim = 0;
  const auto results = disturb(hosts, 2, 2, [&] {
    victim = ranks_of(1).at(0);
    kill(victim, SIGKILL);
  });
  expect_same_line(results);
  EXPECT_THAT(
      results[0].errors,
      AllOf(
          ContainsRegex("rank [23] on "),
          HasSubstr("(pid " + std::to_string(victim) + ") was killed by SIGKILL")));
}

TEST_F(LostHost, AStoppedRankIsNamedOnEveryHost) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  pid_t victim = 0;
  const auto results = disturb(hosts, 2, 2, [&] {
    victim = ranks_of(0).at(1);
    kill(victim, SIGSTOP);
  });
  expect_same_line(results);
  EXPECT_THAT(
      results[0].errors, HasSubstr("(pid " + std::to_string(victim) + ") was stopped"));
}

TEST_F(LostHost, AKilledHostIsNamed) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  auto results = disturb(hosts, 3, 1, [&] { kill(launcher_of(1), SIGKILL); });
  EXPECT_EQ(results[1].status.signal, SIGKILL);
  results.erase(results.begin() + 1);
  expect_same_line(results);
  expect_parts(results[0].errors, {"host 1 on ", "no longer answers"});
}

TEST_F(LostHost, AKilledHostZeroIsNamed) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  auto results = disturb(hosts, 3, 1, [&] { kill(launcher_of(0), SIGKILL); });
  EXPECT_EQ(results[0].status.signal, SIGKILL);
  results.erase(results.begin());
  expect_same_line(results);
  EXPECT_THAT(
      results[0].errors,
      HasSubstr("host 0 at 10.77.0.1 with rank 0 no longer answers"));
}

// As with a suspended virtual machine.
TEST_F(LostHost, AStoppedHostIsNamed) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  std::thread waker;
  const auto results = disturb(hosts, 2, 2, [&] {
    const auto first = launcher_of(0);
    auto all = ranks_of(1);
    all.push_back(launcher_of(1));
    for (const pid_t process : all) {
      kill(process, SIGSTOP);
    }
    waker = std::thread([first, all] {
      EXPECT_TRUE(eventually([&] { return !is_running(first); }, 120));
      for (const pid_t process : all) {
        kill(process, SIGCONT);
      }
    });
  });
  waker.join();
  expect_exit(results[0], 1, {"have had no contact for 10 s"});
  expect_error_line(results[1], 1, {});
}

}  // namespace tandem::lost_host_test
