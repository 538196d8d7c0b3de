#include "tandem/launch/host_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "tandem/base/host.h"
#include "tests/base/store_tools.h"

namespace tandem::host_watch_test {

using testing::HasSubstr;

bool never() {
  return false;
}

const HostEnding kSuccess;
const HostEnding kConsequence{Cause::consequence, 1, "rank 0 failed: all_reduce"};

// Launchers of three hosts with two ranks each.
class Hosts : public testing::Test {
 protected:
  HostWatch::Options place(int node, Milliseconds timeout) const {
    HostWatch::Options place;
    place.node = node;
    place.members = {0, 1, 2};
    place.nproc = 2;
    place.master_addr = "10.0.0.1";
    place.store = server_->address();
    place.timeout = timeout;
    place.greeting = greeting_of(Greeting::Role::launcher, node, 6);
    place.greeting.host = "node" + std::to_string(node);
    place.greeting.identity = "process " + std::to_string(node);
    return place;
  }
  // Node 0 has the server.
  void start(int count, Milliseconds timeout = kLong) {
    for (int node = 0; node < count; ++node) {
      const auto here = place(node, timeout);
      clients_.push_back(nullptr);
      if (node > 0) {
        clients_.back() = std::make_unique<StoreClient>(here.store, kLong);
        clients_.back()->greet(here.greeting);
      }
      watches_.push_back(std::make_unique<HostWatch>(
          here, node == 0 ? server_.get() : nullptr, clients_.back().get()));
    }
  }
  bool all_must_end() {
    return eventually([&] {
      bool all = true;
      for (const auto& watch : watches_) {
        all = watch->must_end(false) && all;
      }
      return all;
    });
  }
  // Returns the reason that each host's launcher reports.
  std::vector<std::string> reasons(const std::vector<HostEnding>& endings) {
    std::vector<std::string> said(endings.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < endings.size(); ++i) {
      threads.emplace_back(
          [&, i] { said[i] = watches_[i]->agree(endings[i], never).reason; });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    return said;
  }

  std::unique_ptr<StoreServer> server_ =
      std::make_unique<StoreServer>("tcp:127.0.0.1:0");
  std::vector<std::unique_ptr<StoreClient>> clients_;
  std::vector<std::unique_ptr<HostWatch>> watches_;
};

TEST_F(Hosts, AllHostsReportTheHostWithTheCause) {
  start(3);
  for (const auto& watch : watches_) {
    EXPECT_FALSE(watch->must_end(false));
  }
  watches_[2]->must_end(true);
  EXPECT_TRUE(all_must_end());
  const std::string cause = "rank 5 on node2 (pid 12) was killed by SIGKILL";
  const auto said = reasons({kConsequence, kConsequence, {Cause::killed, 1, cause}});
  EXPECT_EQ(said, std::vector<std::string>(3, cause));
}

TEST_F(Hosts, OfEqualCausesTheFirstIsReported) {
  start(3);
  watches_[2]->must_end(true);
  EXPECT_TRUE(all_must_end());
  const auto said = reasons(
      {{Cause::own_error, 1, "zero"},
       {Cause::own_error, 1, "one"},
       {Cause::own_error, 1, "two"}});
  EXPECT_EQ(said, std::vector<std::string>(3, "two"));
}

TEST_F(Hosts, SavedAndStoppedOutranksConsequences) {
  start(3);
  const HostEnding saved{Cause::saved_and_stopped, kExitStopped, "at step 5"};
  watches_[1]->must_end(true);
  EXPECT_EQ(
      reasons({saved, saved, kConsequence}), std::vector<std::string>(3, "at step 5"));
}

TEST_F(Hosts, HostZeroNamesTheHostsThatLeave) {
  start(3);
  HostEnding saved{Cause::saved_and_stopped, kExitStopped, "at step 5"};
  std::thread second([&] { watches_[1]->agree(saved, never); });
  HostEnding leaving = saved;
  leaving.leaves = true;
  std::thread third([&] { watches_[2]->agree(leaving, never); });
  std::vector<int> named;
  watches_[0]->agree(saved, never, [&](HostEnding&) {
    named = watches_[0]->leaving_hosts();
    EXPECT_FALSE(watches_[0]->lost_host());
  });
  second.join();
  third.join();
  EXPECT_EQ(named, std::vector<int>{2});
}

TEST_F(Hosts, ASuccessfulRunHasNoReason) {
  start(3);
  EXPECT_EQ(reasons({kSuccess, kSuccess, kSuccess}), std::vector<std::string>(3));
}

TEST_F(Hosts, HostZeroWaitsForRanksOfOtherHosts) {
  start(2);
  HostEnding said;
  std::thread first([&] { said = watches_[0]->agree(kSuccess, never); });
  std::this_thread::sleep_for(Milliseconds(300));
  const HostEnding late{Cause::own_error, 2, "rank 3 on node1 failed: late"};
  EXPECT_EQ(watches_[1]->agree(late, never).reason, late.reason);
  first.join();
  EXPECT_EQ(said.reason, late.reason);
  EXPECT_EQ(said.code, 2);
}

TEST_F(Hosts, AllHostsReportALostHost) {
  start(3);
  watches_[1].reset();
  clients_[1].reset();
  EXPECT_TRUE(eventually([&] {
    const bool second = watches_[2]->must_end(false);
    return watches_[0]->must_end(false) && second;
  }));
  HostEnding other;
  std::thread third([&] { other = watches_[2]->agree(kConsequence, never); });
  const auto first = watches_[0]->agree(kConsequence, never);
  third.join();
  EXPECT_EQ(watches_[0]->lost_host(), 1);
  expect_parts(first.reason, {"host 1 on node1 with ranks 2 to 3", "was killed"});
  EXPECT_EQ(other.reason, first.reason);
}

TEST_F(Hosts, OtherHostsReportTheLossOfHostZero) {
  start(3);
  watches_[0].reset();
  server_.reset();
  EXPECT_TRUE(eventually([&] {
    const bool second = watches_[2]->must_end(false);
    return watches_[1]->must_end(false) && second;
  }));
  EXPECT_FALSE(watches_[1]->lost().empty());
  const auto said = watches_[1]->agree(kConsequence, never).reason;
  EXPECT_THAT(said, HasSubstr("host 0 at 10.0.0.1 with ranks 0 to 1 no longer"));
  EXPECT_EQ(watches_[2]->agree(kConsequence, never).reason, said);
}

// In a network partition nothing arrives, and connections stay open.
TEST_F(Hosts, BothHostsReportALostConnection) {
  const Milliseconds timeout(300);
  StoreClient silent(server_->address(), kLong);
  silent.greet(place(1, timeout).greeting);
  HostWatch first(place(0, timeout), server_.get(), nullptr);
  EXPECT_FALSE(first.must_end(false));
  EXPECT_TRUE(eventually([&] { return first.must_end(false); }));
  const auto one_side = first.agree(kConsequence, never).reason;
  EXPECT_THAT(
      one_side,
      HasSubstr(
          "host 0 at 10.0.0.1 with ranks 0 to 1 and host 1 on node1 with ranks 2 to 3 "
          "have had no contact for 0.3 s"));

  // The kernel accepts the client's messages, and nothing answers them.
  const auto listener = listen_at("tcp:127.0.0.1:0");
  Socket accepted;
  std::thread host_zero([&] {
    accepted = Socket(accept(listener.socket.fd(), nullptr, nullptr));
    accept_client(accepted, "");
  });
  StoreClient unheard(listener.address, kLong);
  host_zero.join();
  HostWatch second(place(1, timeout), nullptr, &unheard);
  EXPECT_TRUE(eventually([&] { return second.must_end(false); }));
  EXPECT_EQ(second.agree(kConsequence, never).reason, one_side);
}

TEST_F(Hosts, WaitingHostsLogTheMissingHosts) {
  auto first = place(0, kLong);
  auto second = place(1, kLong);
  first.began = second.began = std::chrono::steady_clock::now() - Milliseconds(6'000);
  StoreClient client(server_->address(), kLong);
  client.greet(second.greeting);
  HostWatch zero(first, server_.get(), nullptr);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(zero.must_end(false));
  EXPECT_FALSE(zero.must_end(false));
  HostWatch one(second, nullptr, &client);
  // lost() waits for an answer of host 0, so the line has arrived too.
  EXPECT_EQ(one.lost(), "");
  EXPECT_EQ(one.lost(), "");
  const std::string line = "tandem: [launch] waiting for host 2 of 3 to join at " +
                           server_->address() + "\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), line + line);
}

TEST_F(Hosts, AHostDoesNotWaitForItself) {
  auto first = place(0, kLong);
  auto second = place(1, kLong);
  first.began = second.began = std::chrono::steady_clock::now() - Milliseconds(6'000);
  HostWatch zero(first, server_.get(), nullptr);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(zero.must_end(false));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("hosts 1 and 2 of 3"));
  StoreClient client(server_->address(), kLong);
  client.greet(second.greeting);
  testing::internal::CaptureStderr();
  HostWatch one(second, nullptr, &client);
  EXPECT_EQ(one.lost(), "");
  EXPECT_EQ(one.lost(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Hosts, AStoppedHostDoesNotWait) {
  start(2);
  EXPECT_EQ(
      watches_[0]->agree(kConsequence, [] { return true; }).reason,
      kConsequence.reason);
}

Supervisor::Ending exited(int rank, int code, bool stopped_by_us = false) {
  Supervisor::Ending ending;
  ending.rank = rank;
  ending.pid = 100 + rank;
  ending.status.code = code;
  ending.stopped_by_us = stopped_by_us;
  return ending;
}

// Endings and reports of ranks, in order of time, and the code and reason of their
// host.
struct Failure {
  std::vector<Supervisor::Ending> endings;
  std::vector<FailureReport> reports;
  int code;
  std::string reason;
};

TEST(HostEnding, HasTheMostLikelyCause) {
  const Failure failures[] = {
      {{exited(1, 3), exited(0, 0)},
       {},
       1,
       "rank 1 (pid 101) exited with code 3; the other ranks were stopped"},
      // Rank 0 loses its peer and ends first; rank 1 is the cause.
      {{exited(0, 1), exited(1, 1, true)},
       {{0, 1, true, "reset"}, {1, 1, false, "the cause"}},
       1,
       "rank 1 failed: the cause"},
      {{exited(0, 1), exited(1, 2, true)},
       {{0, 1, true, "reset"}, {1, 2, false, "misuse"}},
       2,
       "misuse"},
      // Rank 0 fails when it is stopped.
      {{exited(1, 1), exited(0, 143, true)},
       {{1, 1, true, "timed out"}},
       1,
       "rank 1 failed: timed out"},
      // The launcher stopped the ranks, which saved.
      {{exited(0, 75, true), exited(1, 1, true)},
       {{0, 75, false, "saved"}, {1, 1, true, "timed out"}},
       1,
       "rank 1 failed: timed out"},
      // The report of a consequence may follow from an earlier one.
      {{exited(0, 1), exited(1, 1), exited(2, 1)},
       {{2, 1, true, "waited"}, {0, 1, true, "left"}, {1, 1, true, "left"}},
       1,
       "rank 2 failed: waited"}};
  for (const auto& failure : failures) {
    const auto ending = ending_of_host(failure.endings, failure.reports, {});
    EXPECT_EQ(ending.reason, failure.reason);
    EXPECT_EQ(ending.code, failure.code) << failure.reason;
  }
}

// Files differ between hosts, so an error about them is not the error of all ranks.
TEST(HostEnding, ErrorsAboutFilesNameTheHostIfThereAreSeveral) {
  struct Case {
    int code;
    const char* message;
    bool names_host;
  };
  for (const auto& [code, message, names_host] :
       {Case{1, "[data] 'x.npy' has 10 bytes", true},
        Case{2, "[data] data is 'x', expected the path of files", true},
        Case{1, "[files] cannot read 'x'", true},
        Case{2, "[train] lr differs between rank 2 and rank 0", false}}) {
    const std::vector<FailureReport> reports = {
        {2, code, false, message}, {3, code, false, message}};
    Circumstances when;
    EXPECT_EQ(
        ending_of_host({exited(2, code), exited(3, code)}, reports, when).reason,
        message);
    when.several_hosts = true;
    EXPECT_EQ(
        ending_of_host({exited(2, code), exited(3, code)}, reports, when).reason,
        (names_host ? "rank 2 on " + host_name() + " failed: " : "") + message);
  }
}

// A launcher ends its ranks because of a lost host. The ranks save, but the run was not
// asked to stop.
TEST(HostEnding, RanksThatSaveForALostHostAreNotTheCause) {
  const std::vector<Supervisor::Ending> endings = {
      exited(0, kExitStopped, true), exited(1, kExitStopped, true)};
  const std::vector<FailureReport> reports = {{0, kExitStopped, false, "saved"}};
  EXPECT_LT(ending_of_host(endings, reports, {}).cause, Cause::lost);
  Circumstances stopped;
  stopped.stop_signal = SIGTERM;
  EXPECT_EQ(ending_of_host(endings, reports, stopped).cause, Cause::saved_and_stopped);
  // A rank of another host got the signal.
  const auto saved = ending_of_host({exited(0, kExitStopped)}, reports, {});
  EXPECT_GT(saved.cause, Cause::consequence);
  EXPECT_LT(saved.cause, Cause::lost);
  EXPECT_EQ(saved.code, kExitStopped);
}

TEST(HostEnding, SurvivesConversionToText) {
  const HostEnding ending{Cause::lost, 2, "a reason"};
  const auto back = ending_from(to_text(ending));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->cause, Cause::lost);
  EXPECT_EQ(back->code, 2);
  EXPECT_EQ(back->reason, "a reason");
  EXPECT_EQ(
      ending_from(to_text({Cause::saved_and_stopped, kExitStopped, ""}))->code,
      kExitStopped);
  for (const bool leaves : {false, true}) {
    EXPECT_EQ(
        ending_from(to_text({Cause::own_error, 1, "", !leaves, leaves}))->leaves,
        leaves);
    EXPECT_EQ(
        ending_from(to_text({Cause::own_error, 1, "", !leaves, leaves}))->again,
        !leaves);
  }
  for (const char* text :
       {"", "9 1 x", "1", "1 1", "-1 1 x", "1x 1 x", "0x 1 y", "x y z"}) {
    EXPECT_FALSE(ending_from(text)) << text;
  }
}

// Any process of the run can write such a text.
TEST(HostEnding, FromTextNeverHidesAFailure) {
  for (const char* text : {"5 0 x", "5 1 x", "5 9 x", "5 / x"}) {
    EXPECT_EQ(ending_from(text)->code, 1) << text;
  }
  EXPECT_EQ(ending_from("5 1 a\033[2J")->reason, "a?[2J");
  EXPECT_EQ(ending_from("5 1 " + std::string(5000, 'x'))->reason.size(), 4096u);
}

}  // namespace tandem::host_watch_test
