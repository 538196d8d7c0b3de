#include "tandem/launch/status/status_server.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "exposition.h"
#include "http_client.h"
#include "tandem/launch/status/run_status.h"
#include "tandem/launch/status/status_client.h"
#include "tandem/launch/status/status_sockets.h"
#include "tests/base/test_tools.h"
#include "tests/scratch.h"

namespace tandem::status_server_test {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

RunStatus status_of(int world_size) {
  RunStatus status;
  status.world_size = world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    status.ranks.emplace_back().rank = rank;
  }
  return status;
}

class Serving : public testing::Test {
 protected:
  Serving() : Serving(listen_for_metrics("127.0.0.1", 0)) {}

  std::string ask(const std::string& text) const {
    return answer_of(address_, text);
  }
  bool still_serves() const {
    return samples_of(page_at(address_, "/metrics")).count("tandem_ranks") == 1;
  }

  const std::string address_;
  StatusServer server_;

 private:
  explicit Serving(Socket listener)
      : address_("127.0.0.1:" + std::to_string(port_of(listener))),
        server_(list_of(std::move(listener))) {
    server_.publish(status_of(3));
  }
  static std::vector<Socket> list_of(Socket socket) {
    std::vector<Socket> list;
    list.push_back(std::move(socket));
    return list;
  }
};

TEST_F(Serving, AnswersWithThePublishedStatus) {
  const auto answer = ask("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(
      answer,
      HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_EQ(samples_of(page_at(address_, "/metrics")).at("tandem_ranks"), 3);
  EXPECT_EQ(run_status_from_json(page_at(address_, "/status"))->world_size, 3);
  server_.publish(status_of(4));
  EXPECT_EQ(samples_of(page_at(address_, "/metrics")).at("tandem_ranks"), 4);
}

TEST(StatusServer, AnswersNoOtherUser) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can connect as another user";
  }
  const Scratch directory;
  chmod(directory.path().c_str(), 0777);
  const std::string path = directory / "status";
  std::vector<Socket> listeners;
  listeners.push_back(std::move(listen_at("unix:" + path).socket));
  chmod(path.c_str(), 0777);
  StatusServer server(std::move(listeners));
  server.publish(status_of(3));
  const auto answer = [&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    Socket socket = connect_once("unix:" + path, deadline);
    const std::string request = "GET /status HTTP/1.1\r\n\r\n";
    (void)socket.send_all(request.data(), request.size(), deadline);
    return receive_all_of(socket);
  };
  EXPECT_THAT(answer(), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(
      code_of_child([&] {
        return setresuid(54321, 54321, 54321) == 0 && answer().empty() ? 0 : 1;
      }),
      0);
}

TEST_F(Serving, AnswersHeadWithoutABody) {
  const auto size = page_at(address_, "/metrics").size();
  const auto answer = ask("HEAD /metrics HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: " + std::to_string(size)));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(Serving, RefusesOtherRequests) {
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(
      ask("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
      AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD\r\n")));
  for (const char* line :
       {"", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "GET metrics HTTP/1.1",
        "GET /metrics HTTP/2", "\x16\x03\x01", "GET /a b HTTP/1.1"}) {
    EXPECT_THAT(ask(std::string(line) + "\r\n\r\n"), StartsWith("HTTP/1.1 400 "))
        << line;
  }
  EXPECT_THAT(ask("GET /" + std::string(100'000, 'x')), StartsWith("HTTP/1.1 400 "));
  EXPECT_TRUE(still_serves());
}

TEST_F(Serving, SurvivesRandomBytes) {
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    const auto answer = ask(bytes + "\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 40"));
  }
  EXPECT_TRUE(still_serves());
}

TEST_F(Serving, ClosesSlowConnections) {
  std::vector<Socket> slow;
  // More than the server serves at a time.
  for (int i = 0; i < 20; ++i) {
    slow.push_back(connect_to_address(address_));
    ASSERT_TRUE(slow.back());
    slow.back().send_all("GET /", 5, std::chrono::steady_clock::now());
  }
  // The server answers after it has closed the connections before.
  EXPECT_TRUE(still_serves());
  EXPECT_EQ(receive_all_of(slow[0]), "");
}

TEST_F(Serving, AcceptsARequestInPieces) {
  auto socket = connect_to_address(address_);
  for (const char part : std::string("GET /status HTTP/1.1\r\n\r\n")) {
    ASSERT_TRUE(socket.send_all(
        &part, 1, std::chrono::steady_clock::now() + std::chrono::seconds(5)));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(receive_all_of(socket), StartsWith("HTTP/1.1 200 "));
}

TEST_F(Serving, AnswersAClientThatSendsNoMore) {
  server_.publish(status_of(4096));
  auto socket = connect_to_address(address_);
  const std::string request = "GET /status HTTP/1.1\r\n\r\n";
  socket.send_all(request.data(), request.size(), std::chrono::steady_clock::now());
  shutdown(socket.fd(), SHUT_WR);
  const auto answer = receive_all_of(socket);
  const auto status = run_status_from_json(answer.substr(answer.find("\r\n\r\n") + 4));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->ranks.size(), 4096u);
}

TEST_F(Serving, EndsWithOpenConnections) {
  const auto socket = connect_to_address(address_);
  EXPECT_TRUE(still_serves());
}

TEST(StatusSockets, ReportAPortInUse) {
  const auto first = listen_for_metrics("127.0.0.1", 0);
  const int port = port_of(first);
  EXPECT_EQ(
      error_of<ConfigError>([&] { listen_for_metrics("127.0.0.1", port); }),
      "[launch] cannot serve metrics at 127.0.0.1:" + std::to_string(port) +
          ": Address already in use; change --metrics-port or --metrics-address");
  expect_error<ConfigError>(
      [&] { listen_for_metrics("192.0.2.1", port); },
      {"Cannot assign requested address; change"});
}

TEST(StatusSockets, OfARunAreFoundByAnyPathOfItsDirectory) {
  const Scratch scratch;
  const std::string out = scratch / "run";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  EXPECT_FALSE(connect_to_run(out));
  {
    std::vector<Socket> listeners;
    listeners.push_back(listen_for_run(std::filesystem::relative(out).string() + "/"));
    ASSERT_TRUE(listeners[0]);
    EXPECT_FALSE(listen_for_run(out)) << "another launcher has the socket";
    StatusServer server(std::move(listeners));
    server.publish(status_of(3));
    make_directories(out);
    ASSERT_EQ(symlink(out.c_str(), (scratch / "link").c_str()), 0);
    for (const char* path : {"run", "./run/", "link"}) {
      const auto status = request_status(connect_to_run(scratch / path), deadline);
      ASSERT_TRUE(status) << path;
      EXPECT_EQ(status->world_size, 3);
    }
    EXPECT_FALSE(connect_to_run(scratch / "other"));
  }
  EXPECT_FALSE(connect_to_run(out));
}

TEST(StatusClient, RejectsOtherAnswers) {
  for (const std::string answer :
       {"garbage", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\n\r\n{}"}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    Socket other(ends[1]);
    other.send_all(answer.data(), answer.size(), deadline);
    shutdown(other.fd(), SHUT_WR);
    EXPECT_FALSE(request_status(Socket(ends[0]), deadline)) << answer;
  }
}

}  // namespace tandem::status_server_test
