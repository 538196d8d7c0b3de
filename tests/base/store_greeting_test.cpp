// Ranks with different settings are rejected before they start.

#include "tandem/base/store/greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/base/store_tools.h"

namespace tandem::store_greeting_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

Greeting greeting(
    int number, const std::string& host, Greeting::Role role = Greeting::Role::rank) {
  Greeting greeting = greeting_of(role, number, 3, "auto");
  greeting.host = greeting.identity = host;
  return greeting;
}

TEST(BuildId, NamesVersionAndSources) {
  EXPECT_THAT(build_id(), MatchesRegex("[0-9.]+ .[0-9a-f]+."));
  EXPECT_EQ(build_id().size(), build_id().find(' ') + 15);
}

TEST(Greeting, RoundTripsThroughTexts) {
  auto one = greeting_of(Greeting::Role::launcher, 1, 4, "gloo");
  one.run = "slurm job 12 step 0";
  EXPECT_EQ(one.build, build_id());
  const auto again = from_texts(to_texts(one));
  ASSERT_TRUE(again);
  EXPECT_EQ(to_texts(*again), to_texts(one));
}

TEST(Greeting, InvalidTextsAreRejected) {
  const auto good = to_texts(greeting(1, "a"));
  for (const auto& [at, text] : std::vector<std::pair<size_t, std::string>>{
           {0, "guest"}, {1, "-1"}, {1, "3"}, {1, "x"}, {2, "0"}, {2, ""}}) {
    auto texts = good;
    texts[at] = text;
    EXPECT_FALSE(from_texts(texts)) << at << " " << text;
  }
  auto more = good;
  more.emplace_back();
  EXPECT_FALSE(from_texts(more));
  EXPECT_FALSE(from_texts({}));
}

// A client that knows the token must still not write control characters or long texts
// to this terminal.
TEST(Greeting, TextsAreShortAndPrintable) {
  auto loud = to_texts(greeting(1, "a"));
  loud[3] = loud[4] = loud[5] = loud[7] = "\x1b[31mred" + std::string(1000, '!');
  const auto tame = from_texts(loud);
  ASSERT_TRUE(tame);
  for (const auto& text : {tame->backend, tame->build, tame->host, tame->run}) {
    EXPECT_EQ(text, "?[31mred" + std::string(292, '!'));
  }
}

TEST(RollCall, AcceptsMatchingGreetings) {
  RollCall calls;
  EXPECT_EQ(calls.add(greeting(0, "a", Greeting::Role::launcher)), "");
  EXPECT_EQ(calls.add(greeting(0, "a1")), "");
  EXPECT_EQ(calls.add(greeting(1, "b")), "");
  EXPECT_FALSE(calls.complete());
  auto unknown = greeting(2, "c");
  unknown.backend = "";
  EXPECT_EQ(calls.add(unknown), "");
  EXPECT_TRUE(calls.complete());
  // The same process again.
  EXPECT_EQ(calls.add(greeting(1, "b")), "");
}

TEST(RollCall, NamesBothProcessesThatDiffer) {
  const auto line = [](const auto& change) {
    RollCall calls;
    EXPECT_EQ(calls.add(greeting(0, "node-a", Greeting::Role::launcher)), "");
    auto other = greeting(1, "node-b");
    change(other);
    return calls.add(other);
  };
  EXPECT_EQ(line([](auto&) {}), "");
  const auto both = AllOf(
      StartsWith("[store] rank 1 on node-b"),
      HasSubstr("launcher of host 0 on node-a"));
  const auto build = line([](auto& other) { other.build = "0.0.9 (abc)"; });
  EXPECT_THAT(build, both);
  expect_parts(build, {"0.0.9 (abc)", build_id(), "install"});
  // Launchers may know only the largest number of ranks, so they are not compared with
  // ranks.
  const auto size = line([](auto& other) {
    other.role = Greeting::Role::launcher;
    other.world_size = 4;
  });
  expect_parts(size, {"launcher of host 0 on node-a", "4 ranks", "3;", "--nproc"});
  const auto backend = line([](auto& other) { other.backend = "gloo"; });
  EXPECT_THAT(backend, both);
  expect_parts(backend, {"gloo", "auto;", "--backend"});
}

TEST(RollCall, RejectsARankOfAnotherRun) {
  RollCall calls;
  auto zero = greeting(0, "node-a");
  zero.run = "slurm job 12 step 0";
  EXPECT_EQ(calls.add(zero), "");
  auto one = greeting(1, "node-a");
  one.run = "slurm job 12 step 1";
  EXPECT_EQ(
      calls.add(one),
      "[store] rank 1 on node-a belongs to run 'slurm job 12 step 1', but rank 0 on "
      "node-a belongs to run 'slurm job 12 step 0'; use a different MASTER_PORT for "
      "each run");
  // Programs that only set RANK and WORLD_SIZE do not name their run.
  one.run = "";
  EXPECT_EQ(calls.add(one), "");
}

TEST(RollCall, ComparesRunsWithTheFirstRankThatNamesItsRun) {
  RollCall calls;
  EXPECT_EQ(calls.add(greeting(0, "node-a")), "");
  auto one = greeting(1, "node-a");
  one.run = "a";
  EXPECT_EQ(calls.add(one), "");
  auto two = greeting(2, "node-a");
  two.run = "b";
  expect_parts(calls.add(two), {"run 'b'", "run 'a'"});
}

TEST(RollCall, ListsMissingRanks) {
  RollCall calls;
  EXPECT_EQ(calls.missing_ranks(), "");
  calls.add(greeting(0, "a", Greeting::Role::launcher));
  EXPECT_EQ(calls.missing_ranks(), "ranks 0 to 2 of 3");
  calls.add(greeting(1, "b"));
  EXPECT_EQ(calls.missing_ranks(), "ranks 0 and 2 of 3");
  calls.leave(greeting(1, "b"));
  EXPECT_EQ(calls.missing_ranks(), "ranks 0 to 2 of 3");
  for (int rank : {0, 1, 2}) {
    calls.add(greeting(rank, "c"));
  }
  EXPECT_EQ(calls.missing_ranks(), "");
  // A rank that ended after all had arrived is not missing.
  calls.leave(greeting(1, "c"));
  EXPECT_EQ(calls.missing_ranks(), "");
}

TEST(RollCall, AcceptsARankAgainAfterItFailed) {
  RollCall calls;
  calls.add(greeting(1, "first try"));
  calls.leave(greeting(1, "another"));
  EXPECT_NE(calls.add(greeting(1, "second try")), "");
  calls.leave(greeting(1, "first try"));
  EXPECT_EQ(calls.add(greeting(1, "second try")), "");
  calls.add(greeting(0, "a"));
  calls.add(greeting(2, "b"));
  // All ranks have arrived together.
  calls.leave(greeting(1, "second try"));
  EXPECT_TRUE(calls.complete());
  EXPECT_NE(calls.add(greeting(1, "third try")), "");
}

TEST(RollCall, NamesBothProcessesWithTheSameRank) {
  RollCall calls;
  calls.add(greeting(1, "node-a"));
  expect_parts(
      calls.add(greeting(1, "node-b")),
      {"rank 1 has joined twice", "node-a", "node-b", "--node-rank"});
  calls.add(greeting(2, "node-a", Greeting::Role::launcher));
  EXPECT_THAT(
      calls.add(greeting(2, "node-b", Greeting::Role::launcher)),
      HasSubstr("host 2 has joined twice"));
}

TEST(StoreServer, ReportsADifferenceToEveryRank) {
  const StoreServer server("tcp:127.0.0.1:0");
  StoreClient waiting(server.address(), kLong);
  waiting.greet(greeting(0, "node-a"));
  auto value = std::async(
      std::launch::async, [&] { return waiting.get("never", Milliseconds(600'000)); });
  StoreClient other(server.address(), kLong);
  const auto line = error_of<ConfigError>([&] { other.greet(greeting(0, "node-b")); });
  EXPECT_THAT(line, HasSubstr("joined twice"));
  EXPECT_EQ(error_of<ConfigError>([&] { value.get(); }), line);
  StoreClient late(server.address(), kLong);
  EXPECT_EQ(error_of<ConfigError>([&] { late.greet(greeting(1, "node-c")); }), line);
  // Reports still arrive.
  late.set("failure/1", "2rso");
  EXPECT_EQ(server.get("failure/1"), "2rso");
  EXPECT_EQ(late.get("failure/1", kLong), "2rso");
}

// After a run has begun, a host that cannot join does not end it.
TEST(StoreServer, RefusesALauncherOfAnotherBuildAndKeepsTheRun) {
  StoreServer server("tcp:127.0.0.1:0");
  StoreClient waiting(server.address(), kLong);
  waiting.greet(greeting(0, "node-a", Greeting::Role::launcher));
  waiting.greet(greeting(0, "node-a"));
  server.refuse_only_launchers();
  auto other = greeting(1, "node-b", Greeting::Role::launcher);
  other.build = "0.0.1 (other)";
  StoreClient joining(server.address(), kLong);
  EXPECT_THAT(
      error_of<ConfigError>([&] { joining.greet(other); }), HasSubstr("0.0.1 (other)"));
  expect_alive(waiting);
  StoreClient good(server.address(), kLong);
  good.greet(greeting(1, "node-b", Greeting::Role::launcher));
  expect_alive(good);
}

TEST(StoreServer, AcceptsARankAgainAfterItsConnectionClosed) {
  const StoreServer server("tcp:127.0.0.1:0");
  StoreClient other(server.address(), kLong);
  other.greet(greeting(0, "node-a"));
  {
    StoreClient failed(server.address(), kLong);
    failed.greet(greeting(1, "node-b"));
  }
  // The server sees the end of the connection before it answers this.
  expect_alive(other);
  StoreClient again(server.address(), kLong);
  again.greet(greeting(1, "node-c"));
  expect_alive(other);
}

TEST(StoreServer, RejectsALateProcessAndKeepsTheRun) {
  const StoreServer server("tcp:127.0.0.1:0");
  StoreClient client(server.address(), kLong);
  for (int rank = 0; rank < 3; ++rank) {
    client.greet(greeting(rank, "node-a"));
  }
  StoreClient stray(server.address(), kLong);
  EXPECT_THROW(stray.greet(greeting(2, "node-b")), ConfigError);
  expect_alive(client);
  EXPECT_THROW(client.get("never", kShort), CommError);
}

}  // namespace tandem::store_greeting_test
