#include "tandem/base/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <set>

#include "tests/base/store_tools.h"

namespace tandem::store_test {

class Store : public ::testing::TestWithParam<std::string> {
 protected:
  std::string free_address() const {
    return GetParam() == "unix" ? "unix:" + directory_ / "store" : "tcp:127.0.0.1:0";
  }

  Scratch directory_;
  StoreServer server_{free_address(), "run 7"};
  StoreClient client_{server_.address(), kLong, "run 7"};
  StoreClient other_{server_.address(), kLong, "run 7"};
};

INSTANTIATE_TEST_SUITE_P(
    Over, Store, ::testing::Values("unix", "tcp"),
    [](const auto& param) { return param.param; });

TEST_P(Store, GetReturnsTheValueOfAnotherClient) {
  client_.set("key", "value");
  EXPECT_EQ(other_.get("key", kLong), "value");
  client_.set("key", "");
  EXPECT_EQ(other_.get("key", kLong), "");
}

TEST_P(Store, AddressHasTheRealPort) {
  if (GetParam() == "unix") {
    EXPECT_EQ(server_.address(), free_address());
  } else {
    EXPECT_THAT(
        server_.address(), ::testing::MatchesRegex("tcp:127.0.0.1:[1-9][0-9]*"));
  }
}

TEST_P(Store, GetWaitsUntilTheKeyIsSet) {
  const std::vector<std::function<void(const std::string&)>> setters = {
      [&](const std::string& key) { other_.set(key, "here"); },
      [&](const std::string& key) { server_.set(key, "here"); },
      [&](const std::string& key) { other_.compare_set(key, "", "here"); }};
  for (size_t i = 0; i < setters.size(); ++i) {
    const auto key = "late/" + std::to_string(i);
    auto value =
        std::async(std::launch::async, [&] { return client_.get(key, kLong); });
    EXPECT_EQ(value.wait_for(kShort), std::future_status::timeout);
    setters[i](key);
    EXPECT_EQ(value.get(), "here");
  }
}

TEST_P(Store, ServersOwnerSeesWhatClientsSet) {
  EXPECT_EQ(server_.get("key"), std::nullopt);
  client_.set("key", "value");
  EXPECT_EQ(server_.get("key"), "value");
}

TEST_P(Store, WaitWaitsForEveryKey) {
  auto done = std::async(std::launch::async, [&] {
    client_.wait({"a", "b", "c"}, kLong);
  });
  other_.set("a", "");
  other_.set("c", "");
  EXPECT_EQ(done.wait_for(kShort), std::future_status::timeout);
  other_.add("b", 1);
  EXPECT_NO_THROW(done.get());
}

TEST_P(Store, WaitReturnsImmediatelyIfTheKeysExist) {
  client_.set("a", "1");
  client_.wait({"a"}, Milliseconds(0));
  EXPECT_EQ(client_.get("a", Milliseconds(0)), "1");
}

TEST_P(Store, TimeoutNamesTheKeyAndKeepsTheConnection) {
  expect_error<CommError>(
      [&] { client_.get("address/3", kShort); }, {"address/3", "within 0.03 s"});
  expect_error<CommError>(
      [&] {
        client_.wait({"ready/1", "ready/2"}, kShort);
      },
      {"ready/1, ready/2"});
  other_.set("address/3", "found");
  EXPECT_EQ(client_.get("address/3", kLong), "found");
}

TEST_P(Store, TimeoutOfOneClientDoesNotAffectOthers) {
  auto value =
      std::async(std::launch::async, [&] { return other_.get("late", kLong); });
  EXPECT_THROW(client_.get("late", kShort), CommError);
  client_.set("late", "here");
  EXPECT_EQ(value.get(), "here");
}

TEST_P(Store, AddCountsFromZeroInBothDirections) {
  EXPECT_EQ(client_.add("count", 5), 5);
  EXPECT_EQ(other_.add("count", -8), -3);
  EXPECT_EQ(client_.add("count", 0), -3);
  EXPECT_EQ(client_.get("count", kLong), "-3");
  client_.set("count", "4000000000000");
  EXPECT_EQ(client_.add("count", 1), 4'000'000'000'001);
}

TEST_P(Store, CompareSetChangesOnlyTheExpectedValue) {
  EXPECT_EQ(client_.compare_set("leader", "rank 1", "rank 2"), "");
  EXPECT_FALSE(client_.has({"leader"}));
  EXPECT_EQ(client_.compare_set("leader", "", "rank 0"), "rank 0");
  EXPECT_EQ(other_.compare_set("leader", "", "rank 1"), "rank 0");
  EXPECT_EQ(other_.compare_set("leader", "rank 0", "rank 1"), "rank 1");
  EXPECT_EQ(client_.get("leader", kLong), "rank 1");
}

TEST_P(Store, HasNeedsEveryKey) {
  client_.set("a", "");
  client_.set("b", "");
  EXPECT_TRUE(other_.has({"a"}));
  EXPECT_TRUE(other_.has({"a", "b"}));
  EXPECT_FALSE(other_.has({"a", "x", "b"}));
}

TEST_P(Store, RemoveReturnsWhetherTheKeyExisted) {
  client_.set("a", "1");
  EXPECT_TRUE(other_.remove("a"));
  EXPECT_FALSE(other_.remove("a"));
  EXPECT_FALSE(client_.has({"a"}));
}

TEST_P(Store, CountsKeys) {
  EXPECT_EQ(client_.num_keys(), 0);
  client_.set("a", "1");
  client_.set("a", "2");
  client_.add("b", 1);
  EXPECT_EQ(other_.num_keys(), 2);
  client_.remove("a");
  EXPECT_EQ(other_.num_keys(), 1);
}

TEST_P(Store, KeepsEveryByteOfKeysAndValues) {
  std::string value(5'000'000, '\0');
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<char>((i * 2654435761u) >> 13);
  }
  const std::string key = value.substr(0, 256) + std::string("\0\n\xff", 3);
  client_.set(key, value);
  EXPECT_TRUE(other_.get(key, kLong) == value);
  expect_alive(client_);
}

TEST_P(Store, RejectsAValueLargerThanAFrame) {
  const std::string value(store_protocol::kMaxFrameBytes, 'x');
  expect_error<InternalError>([&] { client_.set("huge", value); }, {"huge", "bytes"});
  expect_alive(client_);
}

TEST_P(Store, ConcurrentAddsAllCount) {
  constexpr int kClients = 8;
  constexpr int kAdds = 40;
  std::vector<std::future<std::vector<int64_t>>> results;
  for (int i = 0; i < kClients; ++i) {
    results.push_back(std::async(std::launch::async, [&] {
      StoreClient own(server_.address(), kLong, "run 7");
      std::vector<int64_t> sums;
      for (int j = 0; j < kAdds; ++j) {
        sums.push_back(own.add("count", 1));
      }
      return sums;
    }));
  }
  std::set<int64_t> all;
  for (auto& result : results) {
    for (const int64_t sum : result.get()) {
      EXPECT_TRUE(all.insert(sum).second) << sum;
    }
  }
  EXPECT_EQ(all.size(), size_t{kClients * kAdds});
  EXPECT_EQ(*all.rbegin(), kClients * kAdds);
}

TEST_P(Store, OneClientServesManyThreads) {
  std::vector<std::future<void>> done;
  for (int i = 0; i < 4; ++i) {
    done.push_back(std::async(std::launch::async, [&, i] {
      const std::string key = "thread/" + std::to_string(i);
      for (int j = 0; j < 40; ++j) {
        client_.set(key, std::to_string(j));
        if (client_.get(key, kLong) != std::to_string(j) ||
            client_.add("count", 1) < 1) {
          throw std::runtime_error("answers were mixed up");
        }
      }
    }));
  }
  for (auto& thread : done) {
    EXPECT_NO_THROW(thread.get());
  }
  EXPECT_EQ(client_.add("count", 0), 160);
}

TEST_P(Store, ClosesConnectionsWithoutAHandshake) {
  const auto request =
      store_protocol::encode({store_protocol::Operation::num_keys, 0, {}});
  for (const std::string& bytes :
       {frame("GET / HTTP/1.1"), std::string("GET / HTTP/1.1\r\nHost: me\r\n\r\n"),
        frame(request), frame(""), std::string(100'000, '\xff')}) {
    Socket stranger = connect_once(server_.address(), Clock::now() + kLong);
    // The server may close the connection before it has received everything.
    stranger.send_all(bytes.data(), bytes.size(), Clock::now() + kLong);
    EXPECT_TRUE(closed_by_server(stranger)) << bytes.substr(0, 20);
  }
  expect_alive(client_);
}

TEST_P(Store, ClosesConnectionsWithAnOversizeFrame) {
  auto greeted = connect_trusted(
      server_.address(), "run 7",
      store_protocol::encode_length(store_protocol::kMaxFrameBytes + 1));
  EXPECT_TRUE(closed_by_server(greeted));
  expect_alive(client_);
}

TEST_P(Store, RejectsABadRequestAndKeepsTheConnection) {
  using store_protocol::Operation;
  const auto good = store_protocol::encode({Operation::set, 0, {"from raw", "1"}});
  auto greeted = connect_trusted(
      server_.address(), "run 7",
      frame("") + frame("garbage") + frame(good.substr(0, good.size() - 1)) +
          frame(good));
  const std::string expected =
      frame("\2") + frame("\2") + frame("\2") + frame(std::string(1, '\0'));
  std::string replies(expected.size(), '?');
  EXPECT_TRUE(
      greeted.receive_all(replies.data(), replies.size(), Clock::now() + kLong));
  EXPECT_EQ(replies, expected);
  EXPECT_EQ(client_.get("from raw", kLong), "1");
}

TEST_P(Store, APartialFrameDoesNotBlockOthers) {
  const auto hello =
      frame(store_protocol::hello(std::string(store_protocol::kNonceBytes, 'n')));
  const auto whole =
      frame(store_protocol::encode({store_protocol::Operation::set, 0, {"half", "1"}}));
  std::vector<Socket> stuck;
  for (const size_t size : {size_t{1}, size_t{3}, size_t{10}}) {
    stuck.push_back(connect_raw(server_.address(), hello.substr(0, size)));
    stuck.push_back(connect_trusted(server_.address(), "run 7", whole.substr(0, size)));
  }
  expect_alive(client_);
  stuck.clear();
  expect_alive(client_);
  EXPECT_FALSE(client_.has({"half"}));
}

TEST_P(Store, AFrameMayArriveByteByByte) {
  const auto whole =
      frame(store_protocol::encode({store_protocol::Operation::set, 0, {"slow", "1"}}));
  auto slow = connect_trusted(server_.address(), "run 7", "");
  for (const char byte : whole) {
    ASSERT_TRUE(slow.send_all(&byte, 1, Clock::now() + kLong));
    std::this_thread::yield();
  }
  EXPECT_EQ(client_.get("slow", kLong), "1");
}

TEST_P(Store, AClientThatLeavesWhileItWaitsDoesNotAffectOthers) {
  const auto waiting =
      frame(store_protocol::encode({store_protocol::Operation::get, 10'000, {"late"}}));
  connect_trusted(server_.address(), "run 7", waiting);
  expect_alive(client_);
  client_.set("late", "1");
  expect_alive(other_);
}

TEST_P(Store, AClientThatDoesNotReadDoesNotBlockOthers) {
  using store_protocol::Operation;
  client_.set("large", std::string(5'000'000, 'x'));
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    requests += frame(store_protocol::encode({Operation::get, 0, {"large"}}));
  }
  requests += frame(store_protocol::encode({Operation::set, 0, {"last", "1"}}));
  const auto lazy = connect_trusted(server_.address(), "run 7", requests);
  expect_alive(client_);
  // The server does not buffer 100 MB of answers: it continues when they have been
  // read.
  EXPECT_THROW(client_.get("last", Milliseconds(300)), CommError);
}

}  // namespace tandem::store_test
