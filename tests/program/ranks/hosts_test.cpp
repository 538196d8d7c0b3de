// Several hosts, which are network namespaces with their own addresses.

#include "hosts.h"

#include <gmock/gmock.h>

namespace tandem::hosts_test {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

TEST(Hosts, TwoHostsWithTwoRanksEachTrainTogether) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const Scratch scratch;
  const auto results = hosts.run_all([&](int host) {
    return with(
        {"train", "--model", "simplenet", "--limit", "1280", "--out",
         scratch / ("run" + std::to_string(host))},
        hosts.flags_of(host, 2, 2));
  });
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
    EXPECT_THAT(result.errors, Not(HasSubstr("hostname")));
  }
  expect_parts(results[0].output, {"4 ranks over shm+gloo", "/1280 ("});
  EXPECT_EQ(json_number(scratch / "run0/summary.json", "world_size"), 4);
}

// Tutorial 000: machines x processes, with the tutorial's names of the flags.
TEST(Hosts, LocalRankZeroOfEachHostPrints) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto results = hosts.run_all([&](int host) {
    return std::vector<std::string>{"train",           recipe_file("gloo-machines"),
                                    "--data",          "digits",
                                    "--limit",         "1024",
                                    "--log-every",     "2",
                                    "--num-machines",  "2",
                                    "--num-processes", "2",
                                    "--machine-id",    std::to_string(host),
                                    "--master-addr",   hosts.address(0)};
  });
  std::vector<std::string> printed;
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
    const auto lines = lines_with(result.output, "training loss");
    ASSERT_EQ(lines.size(), 1u) << result.output;
    EXPECT_THAT(lines[0], StartsWith("epoch: 0 [0/2 (0%)]\t training loss: "));
    printed.push_back(lines[0]);
    EXPECT_THAT(result.output, HasSubstr("Finished training in "));
  }
  // Each host prints its own loss.
  EXPECT_NE(printed[0], printed[1]);
  EXPECT_THAT(results[0].output, HasSubstr("4 ranks over gloo"));
}

// Tutorial 004: -n nodes -g gpus -nr rank, and the address in the environment.
std::vector<CommandResult> run_nodes(int nodes, int ranks_on_each) {
  const Hosts hosts(nodes);
  return hosts.run_all(
      [&](int host) {
        return with(
            {"train", recipe_file("nodes-gpus"), "--data", "digits", "--limit", "1600",
             "--log-every", "1"},
            {"-n", std::to_string(nodes), "-g", std::to_string(ranks_on_each), "-nr",
             std::to_string(host)});
      },
      {{"MASTER_ADDR", hosts.address(0)}, {"MASTER_PORT", "8889"}});
}

TEST(Hosts, FourRanksHaveEqualLossesOnFourHostsAndOnTwo) {
  TANDEM_NEEDS_HOSTS(Hosts(4));
  const auto on_four = run_nodes(4, 1);
  for (const auto& result : on_four) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
    const auto lines = lines_with(result.output, "Epoch [");
    ASSERT_EQ(lines.size(), 8u) << result.output;
    EXPECT_THAT(lines[0], MatchesRegex("Epoch .1/2., Step .1/4., Loss: [0-9.]+"));
    EXPECT_THAT(lines[7], MatchesRegex("Epoch .2/2., Step .4/4., Loss: [0-9.]+"));
    EXPECT_THAT(
        lines_with(result.output, "Training complete in: "),
        ElementsAre(MatchesRegex("Training complete in: 0:0.:[0-9.]+")));
  }
  EXPECT_THAT(on_four[0].output, HasSubstr("4 ranks over gloo"));
  const auto on_two = run_nodes(2, 2);
  for (const auto& result : on_two) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
  }
  EXPECT_THAT(on_two[0].output, HasSubstr("4 ranks over shm+gloo"));
  EXPECT_EQ(
      lines_with(on_two[0].output, "Epoch ["),
      lines_with(on_four[0].output, "Epoch ["));
}

TEST(Hosts, AProgramSpawnsRanksOnBothHosts) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto results = run_together(2, [&](int host) {
    return hosts.run(
        host, {"hosts"}, {{"HOST", std::to_string(host)}, {"HOST_0", hosts.address(0)}},
        "spawn_helper");
  });
  EXPECT_THAT(checked(results[0]).output, HasSubstr("1 of 4, 4 met\n"));
  EXPECT_THAT(checked(results[1]).output, HasSubstr("3 of 4, 4 met\n"));
  EXPECT_THAT(results[1].output, EndsWith("host ended\n"));
}

// Returns the errors in the output, without notices of waiting for hosts that a busy
// machine starts slowly.
std::vector<std::string> error_lines(const std::string& output) {
  return lines_after(output, "tandem: error: ");
}

// Three hosts with a rank each, the last of which has another value. All end with 2 and
// the same line.
std::string line_of_three(
    const std::vector<std::string>& last, const std::vector<std::string>& others) {
  const Hosts hosts(3);
  const auto results = hosts.run_all([&](int host) {
    const auto& more = host == 2 ? last : others;
    const bool has_number = std::count(more.begin(), more.end(), "--node-rank") > 0;
    return with(
        {"train", "--model", "simplenet", "--limit", "640", "--master-addr",
         hosts.address(0), "--master-port", "29500", "--timeout-seconds", "60"},
        more,
        has_number ? Arguments() : Arguments{"--node-rank", std::to_string(host)});
  });
  for (const auto& result : results) {
    EXPECT_EQ(result.status.code, 2) << result.errors;
    EXPECT_THAT(error_lines(result.errors), testing::SizeIs(1)) << result.errors;
    EXPECT_EQ(error_lines(result.errors), error_lines(results[0].errors));
  }
  return results[0].errors;
}

TEST(Hosts, DifferencesAreNamedOnEveryHost) {
  TANDEM_NEEDS_HOSTS(Hosts(3));
  expect_parts(
      line_of_three({"--nnodes", "3", "--nproc", "2"}, {"--nnodes", "3"}),
      {"6 ranks", " 3;", "--nproc"});
  expect_parts(
      line_of_three({"--nnodes", "3", "--backend", "gloo"}, {"--nnodes", "3"}),
      {"backend gloo", " auto;"});
  EXPECT_THAT(
      line_of_three({"--nnodes", "3", "--node-rank", "1"}, {"--nnodes", "3"}),
      HasSubstr("host 1 has joined twice"));
}

struct OverHosts {
  const char* strategy;
  Arguments settings;
  // The first line counts the processes that read the data.
  const char* readers;
};

class HostsWith : public testing::TestWithParam<OverHosts> {};

TEST_P(HostsWith, TwoRanksOnEachOfTwoTrain) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto results = hosts.run_all([&](int host) {
    return with(
        {"train", "--strategy", GetParam().strategy, "--model", "lenet3x3", "--limit",
         "1280"},
        hosts.flags_of(host, 2, 2), GetParam().settings);
  });
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
  }
  expect_parts(
      results[0].output, {std::string(GetParam().readers) + " x batch 64, " +
                              GetParam().strategy + ", 4 ranks",
                          "/1280 ("});
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, HostsWith,
    testing::Values(
        OverHosts{"parameter_server", {}, "3"}, OverHosts{"averaging", {}, "4"},
        OverHosts{"pipeline", {"--stages", "2"}, "2"}),
    [](const auto& row) { return std::string(row.param.strategy); });

}  // namespace tandem::hosts_test
