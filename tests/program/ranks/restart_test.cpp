// Runs whose ranks or launchers are killed or suspended: the launcher starts the ranks
// again, and names the ranks for which others wait.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <future>

#include "counted_samples.h"
#include "hosts.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/data/write_digits.h"
#include "tests/base/test_tools.h"
#include "workers.h"

namespace tandem::restart_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Sends a signal. A missing process has the id 0, which would mean this process group.
void send(pid_t pid, int number) {
  ASSERT_GT(pid, 0);
  kill(pid, number);
}

// Seconds that a busy machine may need.
constexpr int kSoon = 60;

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
    EXPECT_TRUE(eventually(
        [&] {
          newest = newest_checkpoint(out() + "/checkpoints");
          return newest > than;
        },
        kSoon));
    return newest;
  }
  // Returns the workers whose command lines have the marks, when there are `count`.
  static std::vector<pid_t> workers(
      const std::string& mark, size_t count, const std::string& other_mark = "") {
    std::vector<pid_t> found;
    EXPECT_TRUE(eventually(
        [&] {
          found = workers_of(mark, other_mark);
          return found.size() == count;
        },
        kSoon));
    found.resize(count);
    return found;
  }
  // Kills a rank, and waits until it and the other ranks have ended.
  static void kill_rank(pid_t rank, const std::vector<pid_t>& ranks) {
    send(rank, SIGKILL);
    EXPECT_TRUE(eventually(
        [&] { return std::none_of(ranks.begin(), ranks.end(), &is_running); }, kSoon));
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

using tandem::operator<<;

class RestartedRun : public Restart, public testing::WithParamInterface<Ranks> {};

TEST_P(RestartedRun, HasTheParametersOfAnUndisturbedOne) {
  const Arguments& flags = GetParam().flags;
  const size_t num_processes = GetParam().num_processes;
  auto run = begin(training(with({"--out", out(), "--max-restarts", "5"}, flags)));
  std::string newest;
  for (size_t victim : {size_t{0}, num_processes - 1}) {
    newest = newer_checkpoint(newest);
    const auto ranks = workers(out(), num_processes);
    kill_rank(ranks[victim], ranks);
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
        // Each rank has a share of the optimizer's state.
        Ranks{"three", {"--nproc", "3"}, 3},
        Ranks{"averaging", {"--nproc", "4", "--strategy", "averaging"}, 4}),
    testing::PrintToStringParamName());

TEST_F(Restart, NeedsARunDirectory) {
  const auto result = tandem_run(training({"--max-restarts", "1"}));
  expect_exit(result, 2, {"max_restarts is 1, but out is empty"});
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
  const auto result = run_ok(with(
      {"launch", "--nproc", "3", "--max-restarts", "4"},
      program_of_rank(file, "[ $RANK != 1 -o $TANDEM_RESTART_COUNT = 2 ] || exit 7")));
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
  expect_exit(result, 1, {"; no restart is left of 1 (--max-restarts)"});
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
  run_ok(training({"--out", out()}, "3"));
  const auto resumed = run_ok(training({"--out", out()}), second);
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
            {"--out", host == 0 ? out(name) : out("other-" + name)}, more,
            hosts.flags_of(host, 2, 2)),
        epochs);
  }
  std::future<CommandResult> begin_restarting(
      const Hosts& hosts, int host, const Arguments& more) {
    return begin_on(
        hosts, host,
        training_on(hosts, host, "run", with({"--max-restarts", "3"}, more)));
  }
  std::string calm_hash(const Hosts& hosts, const Arguments& more) {
    const auto results =
        hosts.run_all([&](int host) { return training_on(hosts, host, "calm", more); });
    for (const auto& result : results) {
      EXPECT_EQ(result.status.code, 0) << result.errors;
    }
    return hash_of(out("calm"));
  }
};

// Host 0 sends the other host the state of its ranks, whose parameters differ between
// averages.
TEST_F(RestartOnHosts, FollowsTheDeathOfARankOfAnyHost) {
  Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  hosts.keep_on_host_0(out());
  const Arguments averaging = {"--strategy", "averaging", "--average-every", "3"};
  auto first = begin_restarting(hosts, 0, averaging);
  auto second = begin_restarting(hosts, 1, averaging);
  const auto newest = newer_checkpoint();
  kill_rank(workers(out("other-run"), 2)[1], workers(out(), 2));
  newer_checkpoint(newest);
  send(workers(out(), 2)[0], SIGKILL);
  for (auto* run : {&first, &second}) {
    const auto result = checked(run->get());
    EXPECT_THAT(
        result.errors,
        AllOf(
            ContainsRegex("rank [23] on .* was killed by SIGKILL.*restart 1 of 3"),
            ContainsRegex("rank [01] on .* was killed by SIGKILL.*restart 2 of 3")));
  }
  EXPECT_EQ(hash_of(out()), calm_hash(hosts, averaging));
}

TEST_F(RestartOnHosts, WaitsForAHostThatIsStartedAgain) {
  Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  hosts.keep_on_host_0(out());
  const Arguments sharded = {"--shard", "optimizer"};
  auto first = begin_restarting(hosts, 0, sharded);
  auto lost = begin_restarting(hosts, 1, sharded);
  newer_checkpoint();
  send(parent_of_process(workers(out("other-run"), 2)[0]), SIGKILL);
  EXPECT_EQ(lost.get().status.signal, SIGKILL);
  auto replacement = begin_restarting(hosts, 1, sharded);
  const auto result = checked(first.get());
  expect_parts(result.errors, {"host 1 on ", "no longer answers", "restart 1 of 3"});
  EXPECT_EQ(replacement.get().status.code, 0);
  EXPECT_EQ(hash_of(out()), calm_hash(hosts, sharded));
  EXPECT_THAT(list_directory(hosts.storage_of(1)), testing::IsEmpty());
}

// --- hosts that join and leave ---

struct ChangingRun {
  const char* name;
  int ranks_per_host;
  // True if all hosts have the directory of the run; false if only host 0 has it.
  bool is_shared;
};

class ChangingHosts : public RestartOnHosts,
                      public testing::WithParamInterface<ChangingRun> {
 protected:
  std::future<CommandResult> begin_host(const Hosts& hosts, int host) const {
    auto flags = hosts.flags_of(host, GetParam().ranks_per_host, 3);
    *(std::find(flags.begin(), flags.end(), "--nnodes") + 1) = "2:3";
    const Arguments run = {"--out",        out(), "--epochs",           kManyEpochs,
                           "--batch-size", "8",   "--checkpoint-every", "7"};
    return begin_on(hosts, host, with(samples_.training(), run, flags));
  }
  std::vector<pid_t> ranks_of(int host) const {
    const std::string node_rank = "--node-rank" + std::string(1, '\0');
    return workers(
        out(), static_cast<size_t>(GetParam().ranks_per_host),
        node_rank + std::to_string(host));
  }

  const CountedSamples samples_{scratch_ / "samples", 480};
};

TEST_P(ChangingHosts, ReadEachSampleOfAnEpochOnce) {
  Hosts hosts(3);
  TANDEM_NEEDS_HOSTS(hosts);
  if (!GetParam().is_shared) {
    hosts.keep_on_host_0(out());
  }
  auto first = begin_host(hosts, 0);
  auto lost = begin_host(hosts, 1);
  auto third = begin_host(hosts, 2);
  auto newest = newer_checkpoint();
  const auto earlier = ranks_of(0);
  send(parent_of_process(ranks_of(1)[0]), SIGKILL);
  EXPECT_EQ(lost.get().status.signal, SIGKILL);
  // Two hosts continue when host 0 has new ranks, and later three hosts.
  EXPECT_TRUE(eventually([&] { return ranks_of(0)[0] != earlier[0]; }, kSoon));
  newest = newer_checkpoint(newest);
  auto back = begin_host(hosts, 1);
  ranks_of(1);
  newest = newer_checkpoint(newer_checkpoint(newest));
  // A host leaves.
  const auto with_third = ranks_of(0);
  send(parent_of_process(ranks_of(2)[0]), SIGTERM);
  const auto left = third.get();
  expect_exit(left, 75, {"stopped by SIGTERM; host 2 has left the run"});
  EXPECT_TRUE(eventually([&] { return ranks_of(0) != with_third; }, kSoon));
  newer_checkpoint(newer_checkpoint(newest));
  send(parent_of_process(ranks_of(0)[0]), SIGTERM);
  const auto result = first.get();
  EXPECT_EQ(result.status.code, 75) << result.errors;
  EXPECT_THAT(
      result.errors,
      AllOf(
          HasSubstr("no longer answers"),
          HasSubstr("the ranks start again on the other hosts"),
          HasSubstr("[launch] host 1 joined, so the ranks start again on all hosts"),
          HasSubstr(
              "[launch] host 2 left, so the ranks start again on the other hosts"),
          Not(HasSubstr("; restart"))));
  const auto other = back.get();
  EXPECT_EQ(other.status.code, 75) << other.errors;
  for (const auto& checkpoint : checkpoints_in(out() + "/checkpoints")) {
    expect_samples_read_once(checkpoint.second);
  }
}

INSTANTIATE_TEST_SUITE_P(
    RestartOnHosts, ChangingHosts,
    testing::Values(
        ChangingRun{"OneRankPerHost", 1, false},
        ChangingRun{"TwoRanksPerHost", 2, true}),
    testing::PrintToStringParamName());

TEST_F(RestartOnHosts, NeedsTheLeastNumberOfHosts) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  auto flags = hosts.flags_of(0, 1, 3);
  *(std::find(flags.begin(), flags.end(), "--nnodes") + 1) = "2:3";
  const auto result =
      hosts.run(0, training(with({"--out", out(), "--timeout-seconds", "3"}, flags)));
  expect_exit(result, 1, {"1 of at least 2 hosts have joined"});
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

// Runs whose errors are written to files, which the tests read during the run.
class Stall : public RestartOnHosts {
 protected:
  Stall() {
    std::filesystem::create_symlink(program("libsuspend_reader.so"), library_);
  }
  static Arguments logged(const std::string& errors, const Arguments& arguments) {
    return with(
        {"/bin/sh", "-c", "exec \"$@\" 2> " + errors, "sh", program()}, arguments);
  }
  static void expect_soon(const std::string& errors, const std::string& text) {
    EXPECT_TRUE(eventually(
        [&] {
          return file_exists(errors) &&
                 read_file(errors).find(text) != std::string::npos;
        },
        kSoon))
        << read_file(errors);
  }
  // Settings of a run that reads a mapped file.
  Arguments mapped_data() const {
    const auto data = scratch_ / "digits";
    write_digits(data, 2000, 60, DigitsFormat::npy);
    return {"--data", data, "--mean", "0.1307", "--std", "0.3081"};
  }
  // Variables with which a rank suspends itself while it loads data.
  Variables suspended_reader(int rank) const {
    return {{"LD_PRELOAD", library_}, {"SUSPENDED_READER", std::to_string(rank)}};
  }
  static std::string while_loading_data(pid_t rank) {
    return "(pid " + std::to_string(rank) +
           ") is suspended while loading data after step ";
  }
  // Returns the suspended process among the workers with the mark.
  static pid_t suspended_worker(const std::string& mark) {
    pid_t found = 0;
    EXPECT_TRUE(eventually(
        [&] {
          const auto all = workers_of(mark);
          const auto stopped = std::find_if(all.begin(), all.end(), &is_stopped);
          found = stopped == all.end() ? 0 : *stopped;
          return found != 0;
        },
        kSoon));
    return found;
  }

  const std::string errors_ = scratch_ / "errors";
  // LD_PRELOAD separates names by spaces, and the path of the build may have one.
  const std::string library_ = scratch_ / "suspend_reader.so";
};

TEST_F(Stall, OfASuspendedRankIsNamed) {
  const auto command = logged(
      errors_,
      training({"--nproc", "3", "--out", out(), "--stall-warning", "1"}, kManyEpochs));
  auto run = std::async(std::launch::async, [&] { return run_command(command); });
  newer_checkpoint();
  const auto ranks = workers(out(), 3);
  send(ranks[1], SIGSTOP);
  expect_soon(
      errors_, "rank 1 (pid " + std::to_string(ranks[1]) + ") is suspended while ");
  send(ranks[1], SIGCONT);
  expect_soon(errors_, "[launch] the ranks continue");
  send(parent_of_process(ranks[0]), SIGTERM);
  EXPECT_EQ(run.get().status.code, 75);
}

TEST_F(Stall, OfARankThatLoadsDataIsNamed) {
  const Arguments flags = {"--nproc", "3", "--out", out(), "--stall-warning", "1"};
  const auto command =
      logged(errors_, training(with(mapped_data(), flags), kManyEpochs));
  auto run = std::async(
      std::launch::async, [&] { return run_command(command, suspended_reader(1)); });
  const pid_t rank = suspended_worker(out());
  expect_soon(errors_, "wait for rank 1; rank 1 " + while_loading_data(rank));
  send(rank, SIGCONT);
  expect_soon(errors_, "[launch] the ranks continue");
  send(parent_of_process(rank), SIGTERM);
  EXPECT_EQ(run.get().status.code, 75);
}

TEST_F(Stall, IsNamedOnEveryHost) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto flags = with(mapped_data(), {"--stall-warning", "1"});
  const auto begin_host = [&](int host) {
    const auto command = logged(
        errors_ + std::to_string(host),
        training_on(hosts, host, "run", flags, kManyEpochs));
    return std::async(std::launch::async, [this, &hosts, host, command] {
      return hosts.run_any(host, command, suspended_reader(2));
    });
  };
  auto first = begin_host(0);
  auto second = begin_host(1);
  const pid_t rank = suspended_worker(out("other-run"));
  for (const char* host : {"0", "1"}) {
    expect_soon(errors_ + host, while_loading_data(rank));
  }
  send(rank, SIGCONT);
  send(parent_of_process(rank), SIGTERM);
  for (auto* run : {&first, &second}) {
    EXPECT_EQ(run->get().status.code, 75);
  }
}

}  // namespace tandem::restart_test
