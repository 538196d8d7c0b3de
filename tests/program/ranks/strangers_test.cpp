// Processes that may join a run over TCP, and processes that may not.

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "hosts.h"
#include "tandem/base/store/socket.h"

namespace tandem::strangers_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// A run on two hosts of several; the other hosts are strangers.
std::vector<std::string> run_on_two(
    const Hosts& hosts, int number, const std::string& out,
    const Arguments& more = {}) {
  return with(
      {"train", "--model", "simplenet", "--limit", "1280", "--out", out},
      hosts.flags_of(number, 1, 2), more);
}

// Runs host 0, calls a function after its start, then runs host 1.
template <typename Between>
std::vector<CommandResult> run_with(
    const Hosts& hosts, const Scratch& scratch, const Between& between) {
  remove_all(scratch / "0");
  remove_all(scratch / "1");
  std::vector<CommandResult> results(2);
  std::thread first(
      [&] { results[0] = hosts.run(0, run_on_two(hosts, 0, scratch / "0")); });
  between();
  results[1] = hosts.run(1, run_on_two(hosts, 1, scratch / "1"));
  first.join();
  return results;
}

TEST(Strangers, GetAnErrorAndTheRunContinues) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  const Scratch scratch;
  replace_file(scratch / "wrong", "another token\n");
  chmod((scratch / "wrong").c_str(), 0600);
  const auto quiet = run_with(hosts, scratch, [] {});
  ASSERT_TRUE(quiet[0].status.ok()) << quiet[0].errors;
  const auto expected = hash_of(scratch / "0");
  CommandResult wrong;
  CommandResult open;
  CommandResult nothing;
  const auto results = run_with(hosts, scratch, [&] {
    const auto stranger = [&](const Variables& variables, const Arguments& more = {}) {
      return hosts.run(2, run_on_two(hosts, 1, scratch / "2", more), variables);
    };
    wrong = stranger({}, {"--token-file", scratch / "wrong"});
    open = stranger({}, {"--insecure"});
    nothing = stranger({{"TANDEM_TOKEN_FILE", ""}});
  });
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
  }
  // The stranger may be one of the hosts of the run, and the run waits for it.
  EXPECT_THAT(
      results[0].errors,
      AllOf(
          StartsWith("tandem: warning: [store] 10.77.0.3 was rejected"),
          HasSubstr("--token-file")));
  EXPECT_EQ(std::count(results[0].errors.begin(), results[0].errors.end(), '\n'), 1)
      << results[0].errors;
  EXPECT_EQ(results[1].errors, "");
  EXPECT_EQ(hash_of(scratch / "0"), expected);
  EXPECT_EQ(expected.size(), 64u);
  expect_error_line(wrong, 2, {"a different token"});
  expect_exit(open, 2, {"a different token"});
  expect_error_line(nothing, 2, {"several hosts need a token"});
}

// Connects repeatedly until a process listens.
Socket knock(const std::string& address) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Socket socket;
  while (!socket && std::chrono::steady_clock::now() < deadline) {
    socket = connect_once(address, deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(socket);
  return socket;
}

TEST(Strangers, InLargeNumbersHaveNoEffect) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  const Scratch scratch;
  const auto quiet = run_with(hosts, scratch, [] {});
  ASSERT_TRUE(quiet[0].status.ok()) << quiet[0].errors;
  const auto expected = hash_of(scratch / "0");
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  rlimit more = limit;
  more.rlim_cur = std::min<rlim_t>(more.rlim_max, 4096);
  std::vector<Socket> crowd;
  const auto results = run_with(hosts, scratch, [&] {
    // Not before the launcher has set its own limit.
    hosts.on(2, [&] { crowd.push_back(knock("tcp:" + hosts.address(0) + ":29500")); });
    setrlimit(RLIMIT_NOFILE, &more);
    hosts.on(2, [&] {
      std::minstd_rand random(1);
      for (int i = 0; i < 1500; ++i) {
        crowd.push_back(knock("tcp:" + hosts.address(0) + ":29500"));
        std::string junk(i % 3 == 0 ? 100 : 0, '\0');
        for (auto& byte : junk) {
          byte = static_cast<char>(random());
        }
        crowd.back().send_all(
            junk.data(), junk.size(),
            std::chrono::steady_clock::now() + std::chrono::seconds(1));
      }
    });
    setrlimit(RLIMIT_NOFILE, &limit);
  });
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
    EXPECT_EQ(result.errors, "");
  }
  EXPECT_EQ(hash_of(scratch / "0"), expected);
  EXPECT_EQ(expected.size(), 64u);
}

// Returns the listening ports of this host, without that of the run's store.
std::set<int> ports_of_ranks() {
  std::ifstream table("/proc/thread-self/net/tcp");
  std::set<int> ports;
  std::string line;
  while (std::getline(table, line)) {
    unsigned port = 0;
    unsigned state = 0;
    constexpr unsigned kListens = 10;
    if (std::sscanf(line.c_str(), "%*d: %*x:%x %*x:%*x %x", &port, &state) == 2 &&
        state == kListens && port != 29500) {
      ports.insert(static_cast<int>(port));
    }
  }
  return ports;
}

// Answers of a port until it was closed.
struct Manners {
  int answers = 0;
  // Let a call wait, like a port with a filter.
  bool silent = false;
};

Manners call(const std::string& address) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  constexpr std::chrono::milliseconds kPatience{200};
  const auto end = now() + std::chrono::seconds(1);
  Manners manners;
  while (now() < end) {
    const auto deadline = now() + kPatience;
    if (!connect_once(address, deadline)) {
      manners.silent = now() >= deadline;
      break;
    }
    ++manners.answers;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return manners;
}

// Returns those ports of host 0 that answer host 2 as long as they exist, until `over`,
// and the number of silent ports.
struct Answers {
  std::set<int> given;
  int silent = 0;
};

Answers call_every_port(const Hosts& hosts, const std::atomic<bool>& over) {
  // A port may answer this often before it has its filter: a tenth of a second on a
  // busy machine. A port without a filter answers hundreds of times.
  constexpr int kFew = 50;
  Answers answers;
  std::set<int> known;
  std::set<int> ports;
  const auto look = [&] { hosts.on(0, [&] { ports = ports_of_ranks(); }); };
  for (look(); !over; look()) {
    for (const int port : ports) {
      if (!known.insert(port).second) {
        continue;
      }
      Manners manners;
      hosts.on(2, [&] {
        manners = call("tcp:" + hosts.address(0) + ":" + std::to_string(port));
      });
      answers.silent += manners.silent ? 1 : 0;
      if (!manners.silent && manners.answers > kFew) {
        answers.given.insert(port);
      }
    }
  }
  return answers;
}

TEST(Strangers, GetNoAnswerFromPortsOfRanks) {
  const Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  const Scratch scratch;
  // Ports of Gloo and of the RPC.
  const Arguments more = {"--strategy", "parameter_server", "--epochs", "40"};
  std::vector<CommandResult> results(2);
  std::atomic<int> left{2};
  std::atomic<bool> over{false};
  std::vector<std::thread> runs;
  for (int host = 0; host < 2; ++host) {
    runs.emplace_back([&, host] {
      const auto out = scratch / std::to_string(host);
      results[static_cast<size_t>(host)] =
          hosts.run(host, run_on_two(hosts, host, out, more));
      over = over || --left == 0;
    });
  }
  const auto answers = call_every_port(hosts, over);
  for (auto& run : runs) {
    run.join();
  }
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
    EXPECT_EQ(result.errors, "");
  }
  EXPECT_THAT(answers.given, IsEmpty());
  EXPECT_GE(answers.silent, 1);
}

TEST(Strangers, CanJoinWithInsecureAfterAWarning) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const Scratch scratch;
  const auto results = hosts.run_all([&](int host) {
    return run_on_two(hosts, host, scratch / std::to_string(host), {"--insecure"});
  });
  EXPECT_TRUE(results[0].status.ok()) << results[0].errors;
  EXPECT_TRUE(results[1].status.ok()) << results[1].errors;
  expect_parts(results[0].errors, {"--insecure", "10.77.0.1:29500"});
  EXPECT_EQ(std::count(results[0].errors.begin(), results[0].errors.end(), '\n'), 1);
  EXPECT_THAT(results[1].errors, Not(HasSubstr("--insecure")));
}

// Ranks that a user starts, each with its variables.
TEST(Strangers, RanksStartedManuallyOnSeveralHostsNeedTheToken) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto rank = [&](int host, Variables variables) {
    const auto place = variables_of_rank(host, 2, "29500", hosts.address(0));
    variables.insert(variables.end(), place.begin(), place.end());
    return hosts.run(
        host, {"train", "--model", "simplenet", "--limit", "640"}, variables);
  };
  CommandResult first;
  std::thread other([&] { first = rank(0, {}); });
  const auto without = rank(1, {{"TANDEM_TOKEN_FILE", ""}});
  const auto second = rank(1, {});
  other.join();
  expect_exit(without, 2, {"several hosts need a token"});
  EXPECT_TRUE(first.status.ok()) << first.errors;
  EXPECT_TRUE(second.status.ok()) << second.errors;
}

TEST(Strangers, AnotherUserOfThisHostCannotJoin) {
  const Scratch temporary;
  chmod((temporary / "").c_str(), 01777);
  const PublicPrograms programs({"tandem", "tandem-worker"});
  const auto port = unused_port();
  const auto rank = [&](int number, const Arguments& before) {
    auto variables = variables_of_rank(number, 2, port);
    variables.emplace_back("HOME", temporary / std::to_string(number));
    variables.emplace_back("TMPDIR", temporary / "");
    return run_command(
        with(
            before,
            {programs / "tandem", "train", "--model", "simplenet", "--limit", "640"}),
        variables, 600);
  };
  const Arguments as_nobody = {
      "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  if (!run_command(with(as_nobody, {programs / "tandem-worker", "doctor"}), {}, 60)
           .status.ok()) {
    GTEST_SKIP()
        << "cannot run the program as another user; as root, with a LibTorch that "
           "all users can read: scripts/test -R Strangers";
  }
  CommandResult first;
  std::thread other([&] { first = rank(0, {}); });
  const auto stranger = rank(1, as_nobody);
  const auto second = rank(1, {});
  other.join();
  expect_exit(stranger, 2, {"a different token"});
  EXPECT_TRUE(first.status.ok()) << first.errors;
  EXPECT_TRUE(second.status.ok()) << second.errors;
}

}  // namespace tandem::strangers_test
