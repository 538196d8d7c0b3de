// Connections between clients and a server: names, addresses, timeouts and ends.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <memory>
#include <thread>

#include "tandem/base/store/store.h"
#include "tests/base/store_tools.h"

namespace tandem::store_connect_test {

TEST(StoreClient, ConnectsToAServerThatStartsLater) {
  const Scratch directory;
  const std::string address = "unix:" + directory / "store";
  auto value = std::async(std::launch::async, [&] {
    StoreClient client(address, kLong);
    return client.get("key", kLong);
  });
  std::this_thread::sleep_for(kShort);
  StoreServer server(address);
  server.set("key", "value");
  EXPECT_EQ(value.get(), "value");
}

TEST(StoreClient, ReportsAnAddressThatDoesNotAnswer) {
  const Scratch directory;
  const std::string address = "unix:" + directory / "store";
  expect_error<CommError>(
      [&] { StoreClient(address, kShort); },
      {address, "no server answers", "MASTER_ADDR"});
}

TEST(StoreClient, RetriesAHostNameUntilTheTimeout) {
  const auto start = Clock::now();
  expect_error<CommError>(
      [&] { StoreClient("tcp:no-such-host.invalid:1", Milliseconds(300)); },
      {"'no-such-host.invalid' does not resolve", "0.3 s"});
  EXPECT_GE(Clock::now() - start, Milliseconds(250));
}

TEST(StoreServer, RetriesItsHostNameUntilTheTimeout) {
  const auto start = Clock::now();
  expect_error<ResolveError>(
      [&] {
        const StoreServer server("tcp:no-such-host.invalid:0", "", Milliseconds(300));
      },
      {"no-such-host.invalid", "0.3 s"});
  EXPECT_GE(Clock::now() - start, Milliseconds(250));
}

// A listener with a full queue does not answer, like a host whose firewall drops
// packets.
TEST(Connect, TimesOutIfTheHostIsSilent) {
  const Listener full = listen_at("tcp:127.0.0.1:0");
  listen(full.socket.fd(), 0);
  std::vector<Socket> crowd;
  do {
    crowd.push_back(connect_once(full.address, Clock::now() + Milliseconds(100)));
  } while (crowd.back() && crowd.size() < 100);
  EXPECT_FALSE(crowd.back());
  // Without a deadline the kernel tries for two minutes.
  expect_error<CommError>(
      [&] { StoreClient(full.address, Milliseconds(300)); }, {"no server answers"});
}

TEST(StoreClient, FailsSoonAfterTheServerEnds) {
  auto server = std::make_unique<StoreServer>("tcp:127.0.0.1:0");
  StoreClient waiting(server->address(), kLong);
  StoreClient idle(server->address(), kLong);
  const auto start = Clock::now();
  auto value = std::async(
      std::launch::async, [&] { return waiting.get("never", Milliseconds(600'000)); });
  EXPECT_EQ(value.wait_for(kShort), std::future_status::timeout);
  const std::string address = server->address();
  server.reset();
  expect_error<CommError>([&] { value.get(); }, {"never", address, "gone"});
  EXPECT_THROW(idle.set("key", "value"), CommError);
  EXPECT_THROW(idle.set("key", "value"), CommError);
  EXPECT_LT(Clock::now() - start, kLong);
}

TEST(StoreServer, RejectsAnAddressInUse) {
  const StoreServer server("tcp:127.0.0.1:0");
  expect_error<ConfigError>(
      [&] { const StoreServer second(server.address()); },
      {server.address(), "choose another port"});
}

TEST(StoreServer, LeavesNoSocketFile) {
  const Scratch directory;
  const std::string address = "unix:" + directory / "store";
  for (int i = 0; i < 2; ++i) {
    const StoreServer server(address);
    EXPECT_TRUE(file_exists(directory / "store"));
  }
  EXPECT_FALSE(file_exists(directory / "store"));
}

TEST(StoreServer, RejectsAnAddressOfAnotherHost) {
  expect_error<ConfigError>(
      [] { const StoreServer server("tcp:192.0.2.1:0"); },
      {"192.0.2.1", "not an address of this host", "--listen-all"});
}

std::string with_host(const std::string& address, const std::string& host) {
  return "tcp:" + host + address.substr(address.rfind(':'));
}

TEST(StoreServer, ListensOnlyAtItsAddress) {
  const StoreServer server("tcp:127.0.0.2:0");
  const auto soon = Clock::now() + kLong;
  EXPECT_TRUE(connect_once(server.address(), soon));
  EXPECT_FALSE(connect_once(with_host(server.address(), "127.0.0.3"), soon));
}

TEST(StoreServer, ListensAtAllAddressesWithListenAll) {
  const StoreServer server("tcp:192.0.2.1:0", "", {}, ListenOn::all);
  for (const std::string host : {"127.0.0.1", "127.0.0.3"}) {
    StoreClient client(with_host(server.address(), host), kLong);
    expect_alive(client);
  }
}

TEST(StoreServer, RejectsInvalidAddresses) {
  for (const std::string address :
       {"", "store", "unix:", "tcp:", "tcp:host", "tcp::1", "udp:127.0.0.1:1",
        "tcp:127.0.0.1:x", "tcp:127.0.0.1:65536", "tcp:127.0.0.1:99999",
        "tcp:127.0.0.1:-1", "tcp:127.0.0.1:"}) {
    expect_error<ConfigError>(
        [&] { const StoreServer server(address); }, {"'" + address + "'"});
    EXPECT_THROW(StoreClient(address, kShort), ConfigError) << address;
  }
  expect_error<ConfigError>(
      [&] { const StoreServer server("unix:/tmp/" + std::string(200, 'x')); },
      {"TMPDIR"});
}

TEST(StoreServer, TwoServersCanExistInOneProcess) {
  StoreServer first("tcp:127.0.0.1:0");
  StoreServer second("tcp:127.0.0.1:0");
  StoreClient client(first.address(), kLong);
  client.set("key", "value");
  EXPECT_EQ(first.get("key"), "value");
  EXPECT_EQ(second.get("key"), std::nullopt);
}

TEST(StoreServer, RefusesClientsOfAnotherUser) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can connect as another user";
  }
  const Scratch directory;
  chmod(directory.path().c_str(), 0777);
  const std::string path = directory / "store";
  StoreServer server("unix:" + path);
  chmod(path.c_str(), 0777);
  EXPECT_EQ(
      code_of_child([&] {
        if (setresuid(54321, 54321, 54321) != 0) {
          return 1;
        }
        Socket socket = connect_once("unix:" + path, Clock::now() + kLong);
        char byte = 0;
        // The server closes the connection before it sends its random number.
        return !socket ? 2 : socket.receive_all(&byte, 1, Clock::now() + kLong) ? 3 : 0;
      }),
      0);
  StoreClient client("unix:" + path, kLong);
  client.set("key", "value");
  EXPECT_EQ(server.get("key"), "value");
}

TEST(StoreClient, RefusesASocketOfAnotherUser) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can listen as another user";
  }
  const Scratch directory;
  chmod(directory.path().c_str(), 0777);
  const std::string address = "unix:" + directory / "store";
  ASSERT_EQ(seteuid(54321), 0);
  const auto listener = listen_at(address);
  ASSERT_EQ(seteuid(0), 0);
  expect_error<ConfigError>(
      [&] { const StoreClient client(address, kLong); },
      {"[store] another user listens at '" + directory / "store", "set TMPDIR"});
}

}  // namespace tandem::store_connect_test
