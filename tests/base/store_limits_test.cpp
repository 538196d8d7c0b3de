// Limits of the server's memory, time and descriptors for clients.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "tests/base/store_tools.h"

namespace tandem::store_limits_test {

using namespace store_protocol;

bool is_open(const Socket& socket) {
  char byte = 0;
  return recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

TEST(StoreLimits, IdleConnectionsDoNotBlockRanks) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  StoreClient early(server.address(), kLong, "run 7");
  std::vector<Socket> crowd;
  for (size_t i = 0; i < 2 * kMostStrangers; ++i) {
    crowd.push_back(connect_raw(server.address(), ""));
  }
  StoreClient client(server.address(), kLong, "run 7");
  expect_alive(client);
  expect_alive(early);
  // They connected earlier, so the server has accepted all of them.
  EXPECT_LE(
      static_cast<size_t>(std::count_if(crowd.begin(), crowd.end(), &is_open)),
      kMostStrangers);
}

TEST(StoreLimits, SilentConnectionsAreClosed) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  const auto greeting = frame(hello(std::string(kNonceBytes, 'n')));
  Socket silent = connect_raw(server.address(), "");
  Socket begun = connect_raw(server.address(), greeting.substr(0, 7));
  Socket half_way = connect_raw(server.address(), greeting);
  StoreClient client(server.address(), kLong, "run 7");
  EXPECT_TRUE(closed_by_server(silent));
  EXPECT_TRUE(closed_by_server(begun));
  EXPECT_TRUE(closed_by_server(half_way));
  // A client that has finished the handshake may be silent.
  expect_alive(client);
}

TEST(StoreLimits, SlowHandshakesAreClosed) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  const auto greeting = frame(hello(std::string(kNonceBytes, 'n')));
  Socket slow = connect_raw(server.address(), "");
  size_t sent = 0;
  // The whole handshake takes twice the time limit.
  while (sent < greeting.size() &&
         slow.send_all(&greeting[sent], 1, Clock::now() + kLong)) {
    ++sent;
    std::this_thread::sleep_for(Milliseconds(200));
  }
  EXPECT_LT(sent, greeting.size());
}

TEST(StoreLimits, TheTableHasALargestSize) {
  StoreServer server("tcp:127.0.0.1:0");
  StoreClient client(server.address(), kLong);
  const std::string large(kMostTableBytes / 4, 'x');
  int fit = 0;
  const auto fill = [&] {
    for (; fit < 10; ++fit) {
      client.set("large/" + std::to_string(fit), large);
    }
  };
  expect_error<CommError>(fill, {"full: it holds at most 64 MiB"});
  // The fourth value would leave no room for the keys.
  EXPECT_EQ(fit, 3);
  EXPECT_THROW(client.compare_set("other", "", large), CommError);
  EXPECT_THROW(server.set("other", large), CommError);
  EXPECT_FALSE(client.has({"other"}));
  expect_alive(client);
  // Overwriting and removing values changes the size.
  client.set("large/0", "small");
  client.set("large/3", large);
  EXPECT_TRUE(client.remove("large/3"));
  client.set("large/3", large);
  EXPECT_THROW(client.set("large/4", large), CommError);
}

TEST(StoreLimits, EmptyKeysCountTowardsTheTablesSize) {
  const StoreServer server("tcp:127.0.0.1:0");
  Socket socket = connect_trusted(server.address(), "", "");
  const size_t most = kMostTableBytes / kEntryBytes;
  std::string replies;
  auto reading = std::async(std::launch::async, [&] {
    std::string all((most + 1) * 5, '?');
    EXPECT_TRUE(socket.receive_all(all.data(), all.size(), Clock::now() + 6 * kLong));
    return all;
  });
  std::string requests;
  for (size_t i = 0; i < most + 1; ++i) {
    requests += frame(encode({Operation::set, 0, {std::to_string(i), ""}}));
  }
  EXPECT_TRUE(
      socket.send_all(requests.data(), requests.size(), Clock::now() + 6 * kLong));
  const auto all = reading.get();
  EXPECT_EQ(all.substr(0, 5), frame(std::string(1, '\0')));
  EXPECT_EQ(all.substr(all.size() - 5), frame(std::string(1, '\5')));
}

TEST(StoreLimits, ARequestHasALargestNumberOfKeys) {
  Request request;
  const std::vector<std::string> most(kMostTexts, "k");
  EXPECT_TRUE(decode(encode({Operation::has, 0, most}), request));
  auto more = most;
  more.emplace_back("k");
  EXPECT_FALSE(decode(encode({Operation::has, 0, more}), request));
  EXPECT_TRUE(request.texts.empty());
}

TEST(StoreLimits, DeclaredSizesAreCheckedBeforeAllocating) {
  // 15 million empty keys, each 4 bytes long on the wire, took 590 MB.
  auto bytes = encode({Operation::has, 0, {}});
  bytes.replace(9, 4, encode_length(15'000'000));
  bytes.resize(bytes.size() + size_t{4} * 15'000'000);
  Request request;
  EXPECT_FALSE(decode(bytes, request));
  EXPECT_EQ(request.texts.capacity(), 0u);
}

// A process in the server's place may declare any size.
TEST(StoreLimits, ClientsCheckTheServersSizesBeforeAllocating) {
  for (const auto& [declared, most] :
       {std::pair<uint32_t, uint32_t>{kMaxFrameBytes + 1, kMaxFrameBytes},
        {0xffffffff, kMaxFrameBytes},
        {10'000, 1 + kNonceBytes}}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    Socket client(ends[0]);
    Socket server(ends[1]);
    const auto header = encode_length(declared) + "some";
    ASSERT_TRUE(server.send_all(header.data(), header.size(), Clock::now() + kLong));
    server = Socket();
    std::string bytes;
    EXPECT_FALSE(receive_frame(client, bytes, Clock::now() + kLong, most));
    EXPECT_LT(bytes.capacity(), 100u) << declared;
  }
}

TEST(StoreLimits, ClientsSplitRequestsForManyKeys) {
  StoreServer server("tcp:127.0.0.1:0");
  StoreClient client(server.address(), kLong);
  std::vector<std::string> keys;
  for (size_t i = 0; i < 2 * size_t{kMostTexts} + 1; ++i) {
    keys.push_back(std::to_string(i));
    server.set(keys.back(), "");
  }
  EXPECT_TRUE(client.has(keys));
  client.wait(keys, Milliseconds(0));
  EXPECT_TRUE(client.remove(keys.back()));
  EXPECT_FALSE(client.has(keys));
  EXPECT_THROW(client.wait(keys, kShort), CommError);
}

}  // namespace tandem::store_limits_test
