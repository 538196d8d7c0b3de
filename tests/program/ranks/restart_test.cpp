// Runs whose ranks or launchers are killed or suspended: the launcher starts the ranks
// again, and names the ranks for which others wait.

#include <gmock/gmock.h>
#include <signal.h>

#include <future>

#include "hosts.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/base/test_tools.h"
#include "workers.h"

namespace tandem::restart_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kNoHosts =
    "no network namespaces; scripts/setup, then as root: scripts/test -R Restart";

// Sends a signal. A missing process has the id 0, which would mean this process group.
void send(pid_t pid, int number) {
  ASSERT_GT(pid, 0);
  kill(pid, number);
}

// Returns whether the condition becomes true within a minute.
template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 6; ++i) {
    if (eventually(condition)) {
      return true;
    }
  }
  return false;
}

class Restart : public testing::Test {
 protected:
  static constexpr const char* kManyEpochs = "100000";

  static Arguments training(const Arguments& more, const char* epochs = "8") {
    return with(
        {"train", "--model", "net5x5", "--limit", "2000", "--epochs", epochs, "--seed",
         "5", "--checkpoint-every", "5"},
        more);
  }
  static std::future<CommandResult> begin(const Arguments& arguments) {
    return std::async(std::launch::async, [=] { return tandem_run(arguments); });
  }
  static std::future<CommandResult> begin_on(
      const Hosts& hosts, int host, const Arguments& arguments) {
    return std::async(std::launch::async, [&hosts, host, arguments] {
      return hosts.run(host, arguments);
    });
  }
  std::string out(const std::string& name = "run") const {
    return scratch_ / name;
  }
  // Returns a checkpoint of the run that is newer than `than`.
  std::string newer_checkpoint(const std::string& than = "") const {
    std::string newest;
    EXPECT_TRUE(soon([&] {
      newest = newest_checkpoint(out() + "/checkpoints");
      return newest > than;
    }));
    return newest;
  }
  // Returns the workers whose command lines have the mark, when there are `count`.
  static std::vector<pid_t> workers(const std::string& mark, size_t count) {
    std::vector<pid_t> found;
    EXPECT_TRUE(soon([&] {
      found = workers_of(mark);
      return found.size() == count;
    }));
    found.resize(count);
    return found;
  }
  std::string hash_without_failures(const Arguments& flags) const {
    const auto result = tandem_run(training(with({"--out", out("calm")}, flags)));
    EXPECT_EQ(result.status.describe(), "exited with code 0") << result.errors;
    return hash_of(out("calm"));
  }

  const Scratch scratch_;
};

struct Ranks {
  const char* name;
  Arguments flags;
  size_t num_processes;
};

class RestartedRun : public Restart, public testing::WithParamInterface<Ranks> {};

TEST_P(RestartedRun, HasTheParametersOfAnUndisturbedOne) {
  const Arguments& flags = GetParam().flags;
  const size_t num_processes = GetParam().num_processes;
  auto run = begin(training(with({"--out", out(), "--max-restarts", "5"}, flags)));
  std::string newest;
  for (size_t victim : {size_t{0}, num_processes - 1}) {
    newest = newer_checkpoint(newest);
    send(workers(out(), num_processes)[victim], SIGKILL);
  }
  const auto result = run.get();
  EXPECT_EQ(result.status.describe(), "exited with code 0") << result.errors;
  EXPECT_THAT(
      result.errors,
      AllOf(
          ContainsRegex("rank [0-9] \\(pid [0-9]+\\) was killed by SIGKILL.*; restart "
                        "1 of 5"),
          HasSubstr("restart 2 of 5"), HasSubstr("resuming from")));
  EXPECT_EQ(json_value(out() + "/summary.json", "restarts"), "2");
  EXPECT_EQ(hash_of(out()), hash_without_failures(flags));
}

INSTANTIATE_TEST_SUITE_P(
    All, RestartedRun,
    testing::Values(
        Ranks{"one", {}, 1},
        Ranks{"threads", {"--nproc", "3", "--rank-type", "thread"}, 1},
        Ranks{"three", {"--nproc", "3"}, 3},
        Ranks{"averaging", {"--nproc", "4", "--strategy", "averaging"}, 4},
        Ranks{"sharded", {"--nproc", "3", "--optimizer-state", "sharded"}, 3}),
    [](const auto& each) { return each.param.name; });

TEST_F(Restart, NeedsARunDirectory) {
  const auto result = tandem_run(training({"--max-restarts", "1"}));
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr("max_restarts is 1, but out is empty"));
}

// A program of a rank that appends its number of restarts to a file, and then runs
// `command`.
Arguments program_of_rank(const std::string& file, const std::string& command) {
  return {
      "/bin/sh", "-c",
      "echo $RANK:$TANDEM_RESTART_COUNT:$TORCHELASTIC_RESTART_COUNT >> " + file + "; " +
          command};
}

TEST_F(Restart, LetsProgramsReadTheCount) {
  const auto file = scratch_ / "starts";
  const auto result = tandem_run(with(
      {"launch", "--nproc", "3", "--max-restarts", "4"},
      program_of_rank(file, "[ $RANK != 1 -o $TANDEM_RESTART_COUNT = 2 ] || exit 7")));
  EXPECT_EQ(result.status.code, 0) << result.errors;
  EXPECT_THAT(
      result.errors,
      AllOf(
          HasSubstr("rank 1 (pid"), HasSubstr("exited with code 7"),
          HasSubstr("restart 2 of 4 in 2 s"), Not(HasSubstr("restart 3"))));
  const auto starts = sorted_lines(read_file(file));
  EXPECT_EQ(std::count(starts.begin(), starts.end(), "1:0:0"), 1);
  EXPECT_EQ(std::count(starts.begin(), starts.end(), "1:1:1"), 1);
  EXPECT_EQ(std::count(starts.begin(), starts.end(), "2:2:2"), 1);
  EXPECT_EQ(std::count(starts.begin(), starts.end(), "2:3:3"), 0);
}

TEST_F(Restart, EndsWhenNoneIsLeft) {
  const auto file = scratch_ / "starts";
  const auto result = tandem_run(with(
      {"launch", "--nproc", "2", "--max-restarts", "1"},
      program_of_rank(file, "exit 3")));
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("; no restart is left of 1 (--max-restarts)"));
  EXPECT_GE(sorted_lines(read_file(file)).size(), 2u);
}

TEST_F(Restart, DoesNotFollowMisuse) {
  const auto flag = tandem_run(training(
      {"--nproc", "3", "--out", out(), "--max-restarts", "3", "--data",
       scratch_ / "missing"}));
  EXPECT_NE(flag.status.code, 0);
  EXPECT_THAT(flag.errors, Not(HasSubstr("restart")));
  const auto result = tandem_run(with(
      {"launch", "--nproc", "3", "--max-restarts", "3"}, {"/bin/sh", "-c", "exit 2"}));
  EXPECT_EQ(result.status.code, 2) << result.errors;
  EXPECT_THAT(result.errors, Not(HasSubstr("restart")));
}

TEST_F(Restart, ResumesUnderTorchrun) {
  const auto hash = hash_without_failures({});
  const Variables second = {{"TORCHELASTIC_RESTART_COUNT", "1"}};
  const auto stopped = tandem_run(training({"--out", out()}, "3"));
  EXPECT_EQ(stopped.status.code, 0) << stopped.errors;
  const auto resumed = tandem_run(training({"--out", out()}), second);
  EXPECT_EQ(resumed.status.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr("resuming from"));
  EXPECT_EQ(hash_of(out()), hash);
}

TEST_F(Restart, DoesNotFollowAStop) {
  auto run = begin(
      training({"--nproc", "3", "--out", out(), "--max-restarts", "3"}, kManyEpochs));
  newer_checkpoint();
  send(parent_of_process(workers(out(), 3)[0]), SIGTERM);
  const auto result = run.get();
  EXPECT_EQ(result.status.code, 75) << result.errors;
  EXPECT_THAT(result.errors, Not(HasSubstr("restart")));
}

// --- several hosts ---

class RestartOnHosts : public Restart {
 protected:
  // Trains on two hosts with two ranks each.
  Arguments training_on(
      const Hosts& hosts, int host, const std::string& name, const Arguments& more,
      const char* epochs = "16") {
    return training(
        with(
            with({"--out", host == 0 ? out(name) : out("other-" + name)}, more),
            hosts.flags_of(host, 2, 2)),
        epochs);
  }
  std::future<CommandResult> begin_restarting(const Hosts& hosts, int host) {
    return begin_on(
        hosts, host, training_on(hosts, host, "run", {"--max-restarts", "3"}));
  }
  std::string calm_hash(const Hosts& hosts) {
    const auto results =
        hosts.run_all([&](int host) { return training_on(hosts, host, "calm", {}); });
    for (const auto& result : results) {
      EXPECT_EQ(result.status.code, 0) << result.errors;
    }
    return hash_of(out("calm"));
  }
};

TEST_F(RestartOnHosts, FollowsTheDeathOfARankOfAnyHost) {
  const Hosts hosts(2);
  if (!hosts.ok()) {
    GTEST_SKIP() << kNoHosts;
  }
  auto first = begin_restarting(hosts, 0);
  auto second = begin_restarting(hosts, 1);
  const auto newest = newer_checkpoint();
  send(workers(out("other-run"), 2)[1], SIGKILL);
  newer_checkpoint(newest);
  send(workers(out(), 2)[0], SIGKILL);
  for (auto* run : {&first, &second}) {
    const auto result = run->get();
    EXPECT_EQ(result.status.code, 0) << result.errors;
    EXPECT_THAT(
        result.errors,
        AllOf(
            ContainsRegex("rank [23] on .* was killed by SIGKILL.*restart 1 of 3"),
            ContainsRegex("rank [01] on .* was killed by SIGKILL.*restart 2 of 3")));
  }
  EXPECT_EQ(hash_of(out()), calm_hash(hosts));
}

TEST_F(RestartOnHosts, WaitsForAHostThatIsStartedAgain) {
  const Hosts hosts(2);
  if (!hosts.ok()) {
    GTEST_SKIP() << kNoHosts;
  }
  auto first = begin_restarting(hosts, 0);
  auto lost = begin_restarting(hosts, 1);
  newer_checkpoint();
  send(parent_of_process(workers(out("other-run"), 2)[0]), SIGKILL);
  EXPECT_EQ(lost.get().status.signal, SIGKILL);
  auto replacement = begin_restarting(hosts, 1);
  const auto result = first.get();
  EXPECT_EQ(result.status.code, 0) << result.errors;
  EXPECT_THAT(
      result.errors, AllOf(
                         HasSubstr("host 1 on "), HasSubstr("no longer answers"),
                         HasSubstr("restart 1 of 3")));
  EXPECT_EQ(replacement.get().status.code, 0);
  EXPECT_EQ(hash_of(out()), calm_hash(hosts));
}

// --- hosts that join and leave ---

TEST_F(RestartOnHosts, ContinuesWithFewerHostsAndThenWithMore) {
  const Hosts hosts(3);
  if (!hosts.ok()) {
    GTEST_SKIP() << kNoHosts;
  }
  const auto begin_host = [&](int host) {
    auto flags = hosts.flags_of(host, 2, 3);
    *(std::find(flags.begin(), flags.end(), "--nnodes") + 1) = "2:3";
    return begin_on(hosts, host, training(with({"--out", out()}, flags), kManyEpochs));
  };
  const auto ranks_of = [&](int host) {
    const std::string mark = "--node-rank" + std::string(1, '\0');
    return workers(mark + std::to_string(host), 2);
  };
  auto first = begin_host(0);
  auto lost = begin_host(1);
  auto third = begin_host(2);
  auto newest = newer_checkpoint();
  const auto earlier = ranks_of(0);
  send(parent_of_process(ranks_of(1)[0]), SIGKILL);
  EXPECT_EQ(lost.get().status.signal, SIGKILL);
  // Two hosts continue when host 0 has new ranks, and later three hosts.
  EXPECT_TRUE(soon([&] {
    const auto now = ranks_of(0);
    return now[0] != earlier[0] && now[1] != earlier[1];
  }));
  newest = newer_checkpoint(newest);
  auto back = begin_host(1);
  ranks_of(1);
  newest = newer_checkpoint(newer_checkpoint(newest));
  send(parent_of_process(ranks_of(0)[0]), SIGTERM);
  const auto result = first.get();
  EXPECT_EQ(result.status.code, 75) << result.errors;
  EXPECT_THAT(
      result.errors,
      AllOf(
          HasSubstr("no longer answers"),
          HasSubstr("the ranks start again on the other hosts"),
          HasSubstr("[launch] host 1 joined, so the ranks start again on all hosts"),
          Not(HasSubstr("; restart"))));
  for (auto* run : {&third, &back}) {
    const auto other = run->get();
    EXPECT_EQ(other.status.code, 75) << other.errors;
  }
}

TEST_F(RestartOnHosts, NeedsTheLeastNumberOfHosts) {
  const Hosts hosts(2);
  if (!hosts.ok()) {
    GTEST_SKIP() << kNoHosts;
  }
  auto flags = hosts.flags_of(0, 1, 3);
  *(std::find(flags.begin(), flags.end(), "--nnodes") + 1) = "2:3";
  const auto result =
      hosts.run(0, training(with({"--out", out(), "--timeout-seconds", "3"}, flags)));
  EXPECT_EQ(result.status.code, 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("1 of at least 2 hosts have joined"));
}

TEST_F(Restart, RejectsARangeOfHostsThatDoesNotFit) {
  const auto refused = [&](const Arguments& flags) {
    const auto result = tandem_run(training(flags));
    EXPECT_EQ(result.status.code, 2) << result.errors;
    return result.errors;
  };
  const Arguments hosts = {"--master-port", "29500", "--nnodes"};
  EXPECT_THAT(
      refused(with(hosts, {"3:2", "--out", out()})),
      HasSubstr("nnodes is 3:2, expected MIN:MAX with MIN at most MAX"));
  EXPECT_THAT(refused(with(hosts, {"2:3"})), HasSubstr("out is empty"));
  EXPECT_THAT(
      refused(with(
          hosts,
          {"2:3", "--out", out(), "--strategy", "parameter_server", "--nproc", "3"})),
      HasSubstr("strategy is parameter_server, whose number of ranks is fixed"));
}

// --- stalls ---

class Stall : public RestartOnHosts {};

TEST_F(Stall, OfASuspendedRankIsNamed) {
  auto run = begin(
      training({"--nproc", "3", "--out", out(), "--stall-warning", "1"}, kManyEpochs));
  newer_checkpoint();
  const auto ranks = workers(out(), 3);
  send(ranks[1], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  send(ranks[1], SIGCONT);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  send(parent_of_process(ranks[0]), SIGTERM);
  const auto errors = run.get().errors;
  EXPECT_THAT(
      errors, AllOf(
                  HasSubstr("[launch] no progress for "),
                  HasSubstr("(pid " + std::to_string(ranks[1]) + ") is suspended"),
                  HasSubstr("[launch] the ranks continue")));
}

TEST_F(Stall, IsNamedOnEveryHost) {
  const Hosts hosts(2);
  if (!hosts.ok()) {
    GTEST_SKIP() << kNoHosts;
  }
  const auto args = [&](int host) {
    return training_on(hosts, host, "run", {"--stall-warning", "1"}, kManyEpochs);
  };
  auto first = begin_on(hosts, 0, args(0));
  auto second = begin_on(hosts, 1, args(1));
  newer_checkpoint();
  const auto ranks = workers(out("other-run"), 2);
  send(ranks[0], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  send(ranks[0], SIGCONT);
  send(parent_of_process(ranks[1]), SIGTERM);
  for (auto* run : {&first, &second}) {
    EXPECT_THAT(
        run->get().errors,
        HasSubstr("(pid " + std::to_string(ranks[0]) + ") is suspended"));
  }
}

}  // namespace tandem::restart_test
