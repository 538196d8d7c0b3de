// Arguments of `tandem launch` that are refused before any rank starts.

#include "app/launch_flags.h"

#include "app/torchrun_variables.h"
#include "tests/app/refusals.h"

namespace tandem::app::launch_flags_test {

void expect_refused(const std::vector<Refusal>& refusals) {
  app::expect_refused(refusals, [](const Arguments& arguments) {
    launch_ranks(parse_launch(arguments));
  });
}

TEST(LaunchFlags, RefuseInvalidValues) {
  expect_refused({
      {{}, {"the program is missing"}},
      {{"--nproc", "0", "true"}, {"'0'", "1 to 4096"}},
      {{"--nproc", "none", "true"}, {"'none'", "1 to 4096"}},
      {{"--nnodes", "0", "true"}, {"--nnodes", "'0'", "1 to"}},
      {{"--nnodes", "x", "true"}, {"--nnodes", "'x'"}},
      {{"--nnodes=4:1", "true"}, {"'4:1'", "MIN at most MAX"}},
      {{"--master-port", "99999", "true"}, {"'99999'", "65535"}},
      {{"--grace-seconds", "-1", "true"}, {"-1", "--grace-seconds"}},
      {{"-m", "--no-python", "true"}, {"--module", "--no-python"}},
      {{"--redirects=4", "true"}, {"--redirects is '4'", "3 (both)"}},
      {{"-t", "0:3,1", "true"}, {"--tee is '0:3,1'", "0:3,1:2"}},
      {{"--local-ranks-filter=a", "true"}, {"--local-ranks-filter is 'a'", "0,1,2"}},
      {{"--log-dir=/dev/null", "true"}, {"--log-dir is '/dev/null'", "a directory"}},
      {{"--monitor-interval=-1", "true"}, {"--monitor-interval is '-1'", "seconds"}},
      {{"--start-method=thread", "true"}, {"'thread'", "spawn, fork or forkserver"}},
      {{"--duplicate-stderr-filters=a", "--tee=1", "true"},
       {"--duplicate-stderr-filters needs --tee 2 or 3"}},
      {{"--nporc", "2", "true"}, {"--nporc", "'--nproc'"}},
  });
}

// Flags of torchrun that request a service which tandem does not have.
TEST(LaunchFlags, RefuseUnavailableServices) {
  expect_refused({
      {{"--rdzv-backend=etcd-v2", "true"}, {"--rdzv-backend is 'etcd-v2'", "c10d"}},
      {{"--rdzv-conf=timeout=5,ttl=3", "true"},
       {"--rdzv-conf is 'ttl=3'", "join_timeout"}},
      {{"--rdzv-conf=store_type=file", "true"}, {"'store_type=file'"}},
      {{"--rdzv-conf=join_timeout=0", "true"}, {"join_timeout is '0'", "above 0"}},
      {{"--event-log-handler=console", "true"}, {"'console'", "no events"}},
      {{"--logs-specs=mine", "true"}, {"--logs-specs is 'mine'", "--log-dir"}},
      {{"--numa-binding=node", "true"}, {"--numa-binding is 'node'", "numactl"}},
      {{"--signals-to-handle=SIGTERM,SIGALRM", "true"}, {"SIGALRM", "SIGUSR2"}},
  });
}

TorchrunOptions torchrun_of(Arguments arguments) {
  arguments.emplace_back("true");
  return parse_launch(arguments).torchrun.value();
}

TEST(LaunchFlags, ChooseStreamsOfEachRank) {
  const auto logs = torchrun_of({"-r3", "-t", "0:1,12:2", "--log_dir=a"}).logs;
  EXPECT_EQ(logs.directory, "a");
  EXPECT_TRUE(logs.redirected.at(7).output);
  EXPECT_TRUE(logs.redirected.at(7).errors);
  EXPECT_TRUE(logs.teed.at(0).output);
  EXPECT_FALSE(logs.teed.at(0).errors);
  EXPECT_TRUE(logs.teed.at(12).errors);
  EXPECT_FALSE(logs.teed.at(1).output || logs.teed.at(1).errors);
}

TEST(LaunchFlags, SplitFiltersAtSingleCommas) {
  const auto logs = torchrun_of({"--tee=3", "--duplicate-stdout-filters=a,,b,c",
                                 "--local-ranks-filter", "0,2"})
                        .logs;
  EXPECT_EQ(logs.output_filters, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(logs.shown, (std::set<int>{0, 2}));
}

// These values request what tandem does anyway.
TEST(LaunchFlags, AcceptWhatHoldsAnyway) {
  const auto options = parse_launch(
      {"--rdzv-backend=c10d", "--monitor-interval=0.5", "--start-method=fork",
       "--event-log-handler=null", "--signals-to-handle=SIGTERM,SIGUSR2",
       "--local-addr=127.0.0.1", "--rdzv-conf=is_host=1,store_type=tcp", "true"});
  EXPECT_EQ(options.command, Arguments{"true"});
  EXPECT_EQ(options.timeout_seconds, LaunchOptions().timeout_seconds);
}

TEST(LaunchFlags, UseTheLongestTimeoutOfTheRendezvous) {
  const auto timeout = [](Arguments arguments) {
    arguments.insert(arguments.begin(), "--rdzv-conf=timeout=30,join_timeout=60");
    arguments.emplace_back("true");
    return parse_launch(arguments).timeout_seconds;
  };
  EXPECT_EQ(timeout({}), 60);
  EXPECT_EQ(timeout({"--timeout-seconds=5"}), 5);
}

TEST(LaunchFlags, UseTheEndpointOnSeveralHosts) {
  const auto master = [](Arguments arguments) {
    arguments.insert(arguments.begin(), {"--nnodes=3", "--node-rank=2"});
    arguments.emplace_back("true");
    const auto options = parse_launch(arguments);
    return options.master_addr + ":" + std::to_string(options.master_port);
  };
  EXPECT_EQ(master({"--rdzv-endpoint=h:7"}), "h:7");
  EXPECT_EQ(master({"--rdzv-endpoint=h:7", "--master-port=8"}), "h:7");
  EXPECT_EQ(master({"--rdzv-endpoint=h", "--rdzv-backend=c10d"}), "h:29400");
}

TEST(LaunchFlags, UseTheLocalAddressOnHost0) {
  const auto master = [](Arguments arguments) {
    arguments.emplace_back("true");
    return parse_launch(arguments).master_addr;
  };
  EXPECT_EQ(master({"--local-addr=10.0.0.7"}), "10.0.0.7");
  EXPECT_EQ(master({"--local-addr=10.0.0.7", "--master-addr=h"}), "h");
  const auto of_hosts = [](const std::string& local, const std::string& node) {
    return Arguments{
        "--nnodes=3",
        "--master-port=7",
        "--master-addr=127.0.0.1",
        "--local-addr=" + local,
        "--node-rank",
        node};
  };
  EXPECT_EQ(master(of_hosts("::1", "2")), "127.0.0.1");
  EXPECT_EQ(master(of_hosts("localhost", "0")), "127.0.0.1");
  auto other = of_hosts("::1", "0");
  other.emplace_back("true");
  expect_refused({{other, {"--local-addr is '::1'", "'127.0.0.1'"}}});
}

TEST(LaunchFlags, StartAScriptOfAnyNameWithRunPath) {
  const auto options = parse_launch({"--run-path", "--no-python", "/a/b", "x"});
  EXPECT_THAT(options.command, testing::ElementsAre(testing::_, "-u", "/a/b", "x"));
}

TEST(LaunchFlags, RefuseIncompleteSettingsOfSeveralHosts) {
  expect_refused({
      {{"--nnodes", "2", "true"}, {"--master-port"}},
      {{"--nnodes", "2", "--node-rank", "2", "--master-port", "4242", "true"},
       {"node rank is 2 of 2 hosts", "--node-rank"}},
      {{"--nnodes", "2", "--master-port", "4242", "--master-addr", "10.77.0.1", "true"},
       {"several hosts need a token", "umask 077"}},
      {{"--nnodes=2", "--rdzv-endpoint=127.0.0.1:4242", "true"},
       {"--rdzv-endpoint", "--node-rank"}},
      {{"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=127.0.0.1", "true"},
       {"'127.0.0.1'", "HOST:PORT"}},
      {{"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=127.0.0.1:x", "true"},
       {"'x'", "1 to 65535"}},
      {{"--nnodes=2", "--node-rank=1", "--master-port=4242", "--rdzv-conf=is_host=true",
        "true"},
       {"is_host is true on host 1", "--node-rank"}},
  });
}

using Command = TorchrunVariables::Command;

struct BadVariable {
  std::string name;
  std::string value;
  const char* expected;
};

// The environment with only this variable.
TorchrunVariables only(const BadVariable& variable) {
  return TorchrunVariables([variable](const std::string& name) {
    return name == variable.name ? std::optional(variable.value) : std::nullopt;
  });
}

void expect_refused_variable(const BadVariable& bad, Command command) {
  app::expect_refused(
      {{{}, {bad.name + " is '" + bad.value, bad.expected}}},
      [&](const Arguments& none) { return only(bad).add_flags(none, command); });
}

TEST(TorchrunVariables, NameTheVariableOfAnInvalidValue) {
  const BadVariable variables[] = {
      {"PET_NNODES", "x", "1 to 65536"},
      {"PET_NNODES", "0", "1 to 65536"},
      {"PET_NNODES", "4:1", "MIN at most MAX"},
      {"PET_NPROC_PER_NODE", "two", "1 to 4096, auto, cpu or gpu"},
      {"PET_NODE_RANK", "-1", "0 to 65535"},
      {"PET_MAX_RESTARTS", "-1", "0 to"},
      {"PET_MASTER_PORT", "70000", "0 to 65535"}};
  for (const auto& bad : variables) {
    expect_refused_variable(bad, Command::launch);
    expect_refused_variable(bad, Command::train);
  }
}

TEST(TorchrunVariables, NameTheVariableOfAnInvalidValueOfLaunchOnly) {
  const BadVariable variables[] = {
      {"PET_TEE", "5", "3 (both)"},
      {"PET_RDZV_BACKEND", "etcd", "static or c10d"},
      {"PET_RDZV_CONF", "ttl=3", "join_timeout"},
      {"PET_MONITOR_INTERVAL", "soon", "seconds"},
      {"PET_SHUTDOWN_TIMEOUT", "x", "0 to"},
      {"PET_STANDALONE", "yes", "0 to 1"}};
  for (const auto& bad : variables) {
    expect_refused_variable(bad, Command::launch);
    EXPECT_EQ(only(bad).add_flags({}, Command::train), Arguments{});
  }
}

TEST(TorchrunVariables, AreDefaultsOfSwitches) {
  const auto flags = [](const BadVariable& variable, const Arguments& given) {
    return only(variable).add_flags(given, Command::launch);
  };
  const BadVariable on = {"PET_NO_PYTHON", "1", ""};
  EXPECT_EQ(flags(on, {}), Arguments{"--no-python"});
  EXPECT_EQ(flags(on, {"--no_python"}), Arguments{"--no_python"});
  EXPECT_EQ(flags({"PET_NO_PYTHON", "0", ""}, {}), Arguments{});
  EXPECT_EQ(flags({"PET_TEE", "3", ""}, {}), (Arguments{"--tee", "3"}));
  EXPECT_EQ(flags({"PET_TEE", "3", ""}, {"-t", "1"}), (Arguments{"-t", "1"}));
}

}  // namespace tandem::app::launch_flags_test
