// RPC over TCP between ranks that are threads, and processes that are not ranks.
// rpc_test.cpp tests the contract of all RPCs.

#include "tandem/comm/rpc/tcp_rpc.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/comm/rpc/message_transfer.h"
#include "tandem/comm/rpc/request_server.h"
#include "tests/base/store_tools.h"

namespace tandem::tcp_rpc_test {

constexpr const char* kToken = "run 7";

// The Rpcs of all ranks.
class Ranks {
 public:
  explicit Ranks(int size, Milliseconds timeout = kLong) {
    TcpRpcOptions options;
    options.timeout = timeout;
    std::vector<std::future<std::unique_ptr<Rpc>>> made;
    for (int rank = 0; rank < size; ++rank) {
      made.push_back(std::async(std::launch::async, [=] {
        const auto store =
            std::make_shared<StoreClient>(store_.address(), kLong, kToken);
        return make_tcp_rpc(store, "rpc", rank, size, options);
      }));
    }
    for (auto& rpc : made) {
      rpcs_.push_back(rpc.get());
    }
  }

  Rpc& operator[](size_t rank) {
    return *rpcs_[rank];
  }
  void end(size_t rank) {
    rpcs_[rank].reset();
  }

  std::string secret_of(int rank) {
    return entry_of(rank)[0];
  }
  std::string address_of(int rank) {
    return entry_of(rank)[1];
  }
  // Returns a connection to a rank, as another rank makes it.
  Socket connect(int from, int to) {
    return connect_to_server(
        address_of(to), std::string(kToken) + "\n" + secret_of(to), from, to,
        Clock::now() + kLong);
  }

 private:
  std::vector<std::string> entry_of(int rank) {
    return split(store_.get("rpc/" + std::to_string(rank)).value(), ' ');
  }

  StoreServer store_{"tcp:127.0.0.1:0", kToken};
  std::vector<std::unique_ptr<Rpc>> rpcs_;
};

// Calls `peer`, whose Rpc answers with the request's tensors.
RpcMessage echo(Ranks& ranks, size_t from, size_t to, const RpcMessage& message) {
  auto answer = std::async(std::launch::async, [&] {
    return ranks[from].call(static_cast<int>(to), message);
  });
  auto request = ranks[to].next();
  EXPECT_EQ(request.from, static_cast<int>(from));
  request.reply(request.message);
  return answer.get();
}

void expect_echo(Ranks& ranks, size_t from, size_t to) {
  const auto answer = echo(ranks, from, to, {"there", {at::full({5}, 3)}});
  EXPECT_EQ(answer.header, "there");
  EXPECT_TRUE(answer.tensors.at(0).equal(at::full({5}, 3)));
}

void send_bytes(Socket& socket, const std::string& bytes) {
  EXPECT_TRUE(socket.send_all(bytes.data(), bytes.size(), Clock::now() + kLong));
}

TEST(TcpRpc, AProcessWithoutTheTokenIsRefused) {
  Ranks ranks(2);
  const auto address = ranks.address_of(0);
  const auto secret = ranks.secret_of(0);
  const std::string right = std::string(kToken) + "\n" + secret;
  const auto try_key = [&](const std::string& key, int from, int to) {
    expect_error<CommError>(
        [&] { connect_to_server(address, key, from, to, Clock::now() + kLong); },
        {"did not prove its rank"});
  };
  try_key("", 1, 0);
  try_key("\n" + secret, 1, 0);
  try_key(std::string(kToken) + "\n", 1, 0);
  try_key("run 8\n" + secret, 1, 0);
  // Another rank's number, and numbers that are no rank.
  try_key(right, 1, 1);
  try_key(right, 0, 0);
  try_key(right, 2, 0);
  try_key(right, -1, 0);
  const auto request = encode(1, {"push", {}}).text;
  Socket at_once = connect_raw(address, request);
  EXPECT_TRUE(closed_by_server(at_once));
  Socket after_rank = connect_raw(address, frame("1") + request);
  EXPECT_TRUE(closed_by_server(after_rank));
  expect_echo(ranks, 1, 0);
  // The proof is valid for one rank: the caller of this connection is rank 1.
  EXPECT_TRUE(ranks.connect(1, 0));
}

TEST(TcpRpc, StrangersDoNotDelayRanks) {
  Ranks ranks(2);
  std::vector<Socket> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(connect_raw(ranks.address_of(0), i % 2 == 0 ? "" : frame("1")));
  }
  expect_echo(ranks, 1, 0);
  // The server keeps at most 256 strangers.
  EXPECT_TRUE(closed_by_server(crowd[0]));
}

TEST(TcpRpc, ARankThatEndsIsNamed) {
  for (const bool called : {false, true}) {
    Ranks ranks(3);
    if (called) {
      expect_echo(ranks, 2, 0);
      expect_echo(ranks, 0, 2);
    }
    ranks.end(2);
    const auto check = [](const auto& wait) {
      try {
        wait();
        ADD_FAILURE() << "no error";
      } catch (const CommError& error) {
        EXPECT_EQ(error.peer(), 2) << error.what();
      }
    };
    check([&] { ranks[0].next(); });
    check([&] { ranks[0].call(2, {}); });
    check([&] { ranks[0].call(2, {}); });
  }
}

TEST(TcpRpc, RequestsOfARankThatEndedAreFirst) {
  Ranks ranks(2);
  {
    Socket socket = ranks.connect(1, 0);
    send_bytes(socket, encode(1, {"last", {}}).text);
  }
  EXPECT_EQ(ranks[0].next().message.header, "last");
  expect_error<CommError>([&] { ranks[0].next(); }, {"rank 1"});
}

TEST(TcpRpc, InvalidMessagesEndTheConnectionWithTheRank) {
  const auto good = encode(1, {"push", {at::zeros({3})}}).text;
  auto large_start = good;
  large_start[15] = '\xff';
  auto wrong_dtype = good;
  wrong_dtype[kFrameStartBytes + 8 + 4 + 8] = '\xff';
  for (const auto& bytes : {large_start, wrong_dtype}) {
    Ranks ranks(2);
    Socket socket = ranks.connect(1, 0);
    send_bytes(socket, bytes);
    expect_error<CommError>([&] { ranks[0].next(); }, {"rank 1", "is invalid"});
  }
}

TEST(TcpRpc, ALateAnswerIsNotTheAnswerToTheNextRequest) {
  Ranks ranks(2, Milliseconds(300));
  expect_error<CommError>(
      [&] {
        ranks[1].call(0, {"first", {}});
      },
      {"rank 0", "300 ms"});
  auto first = ranks[0].next();
  auto answer = std::async(std::launch::async, [&] {
    return ranks[1].call(0, {"second", {}});
  });
  auto second = ranks[0].next();
  first.reply({"to the first", {}});
  second.reply({"to the second", {}});
  EXPECT_EQ(answer.get().header, "to the second");
}

// The test would not end if reply() waited for rank 1.
TEST(TcpRpc, ARankThatDoesNotReadBlocksNoOtherRank) {
  Ranks ranks(3);
  Socket socket = ranks.connect(1, 0);
  send_bytes(socket, encode(5, {"ask", {}}).text);
  auto values = at::full({16'000'000}, 3.0F);
  ranks[0].next().reply({"large", {values}});
  values.fill_(4);
  expect_echo(ranks, 2, 0);
  MessageReceiver receiver;
  while (!receiver.receive_some(socket.fd())) {
    ASSERT_TRUE(wait_until_ready(socket.fd(), POLLIN, Clock::now() + kLong));
  }
  EXPECT_EQ(receiver.id(), 5u);
  EXPECT_TRUE(receiver.take().tensors.at(0).equal(at::full({16'000'000}, 3.0F)));
}

TEST(TcpRpc, AMissingRankIsAnError) {
  const StoreServer server("tcp:127.0.0.1:0", kToken);
  const auto store = std::make_shared<StoreClient>(server.address(), kLong, kToken);
  TcpRpcOptions options;
  options.timeout = Milliseconds(100);
  expect_error<CommError>(
      [&] { make_tcp_rpc(store, "rpc", 0, 2, options); }, {"rpc/1"});
}

}  // namespace tandem::tcp_rpc_test
