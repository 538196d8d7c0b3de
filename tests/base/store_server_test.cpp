// Untrusted clients, many clients and errors at the store's server.

#include "tandem/base/store/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <thread>

#include "tests/base/store_tools.h"

namespace tandem::store_server_test {

using store_protocol::Operation;

std::string request(Operation operation, const std::vector<std::string>& texts) {
  return frame(store_protocol::encode({operation, 10'000, texts}));
}

const std::string kOk(1, '\0');

TEST(StoreServer, UntrustedConnectionsGetNoMemory) {
  // The first frame identifies the client; the server does not wait for a longer frame.
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  const auto has_answer = [&](size_t length) {
    // A client of another version gets an answer, unless its frame is too long.
    std::string hello = "tandem-store 9 ";
    hello.resize(length, 'x');
    const auto bytes = frame(hello);
    Socket stranger = connect_once(server.address(), Clock::now() + kLong);
    // The server may close the connection before it has received everything.
    stranger.send_all(bytes.data(), bytes.size(), Clock::now() + kLong);
    char byte = 0;
    return stranger.receive_all(&byte, 1, Clock::now() + kLong);
  };
  EXPECT_TRUE(has_answer(store_protocol::kMostHandshakeBytes));
  for (const size_t more : {1, 1'000, 1'000'000}) {
    EXPECT_FALSE(has_answer(store_protocol::kMostHandshakeBytes + more)) << more;
  }
  StoreClient client(server.address(), kLong, "run 7");
  client.set("large", std::string(1'000'000, 'x'));
  expect_alive(client);
}

TEST(StoreServer, AnswersPipelinedRequests) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  constexpr size_t kCount = 20'000;
  std::string asked;
  std::string answers;
  for (size_t i = 0; i < kCount; ++i) {
    asked += request(Operation::add, {"count", "1"});
    answers += frame(kOk + std::to_string(i + 1));
  }
  Socket socket = connect_trusted(server.address(), "run 7", "");
  auto sent = std::async(std::launch::async, [&] {
    return socket.send_all(asked.data(), asked.size(), Clock::now() + kLong);
  });
  std::string received(answers.size(), '?');
  EXPECT_TRUE(
      socket.receive_all(received.data(), received.size(), Clock::now() + kLong));
  EXPECT_TRUE(sent.get());
  EXPECT_TRUE(received == answers);
}

TEST(StoreServer, ContinuesWithRequestsAfterAGetThatWaited) {
  StoreServer server("tcp:127.0.0.1:0", "run 7");
  Socket socket = connect_trusted(
      server.address(), "run 7",
      request(Operation::get, {"late"}) + request(Operation::num_keys, {}));
  StoreClient client(server.address(), kLong, "run 7");
  client.set("late", "here");
  const std::string expected = frame(kOk + "here") + frame(kOk + "1");
  std::string received(expected.size(), '?');
  EXPECT_TRUE(
      socket.receive_all(received.data(), received.size(), Clock::now() + kLong));
  EXPECT_EQ(received, expected);
}

TEST(StoreServer, SumsWrapAround) {
  const StoreServer server("tcp:127.0.0.1:0");
  StoreClient client(server.address(), kLong);
  client.add("count", std::numeric_limits<int64_t>::max());
  EXPECT_EQ(client.add("count", 1), std::numeric_limits<int64_t>::min());
  expect_alive(client);
}

TEST(StoreClient, RejectsAnswersThatAreNotNumbers) {
  auto listener = listen_at("tcp:127.0.0.1:0");
  auto impostor = serve_one(listener, [](Socket& peer) {
    accept_client(peer, "run 7");
    const std::string answers = frame(kOk + "many");
    peer.send_all(answers.data(), answers.size(), Clock::now() + kLong);
    closed_by_server(peer);
  });
  {
    StoreClient client(listener.address, kLong, "run 7");
    expect_error<CommError>([&] { client.add("count", 1); }, {"'many'"});
  }
  impostor.get();
}

std::vector<std::string> threads() {
  return list_directory("/proc/self/task");
}

// Returns the state letter of a thread: 'S' sleeps, 'R' runs. It opens the file before
// all descriptors are used up.
class ThreadState {
 public:
  explicit ThreadState(const std::string& id)
      : file_(open(("/proc/self/task/" + id + "/stat").c_str(), O_RDONLY)) {}

  bool sleeps() const {
    char text[200] = {};
    const auto got = pread(file_.fd(), text, sizeof(text) - 1, 0);
    const char* name_end = got > 0 ? std::strchr(text, ')') : nullptr;
    return name_end != nullptr && name_end[2] == 'S';
  }

 private:
  Descriptor file_;
};

// Uses all descriptors that this process may have, while it exists.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &limit_);
    rlimit few = limit_;
    few.rlim_cur =
        static_cast<rlim_t>(Descriptor(open("/dev/null", O_RDONLY)).fd()) + 20;
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = 0; fd >= 0;) {
      fd = open("/dev/null", O_RDONLY);
      taken_.emplace_back(fd);
    }
    taken_.pop_back();
  }
  ~NoDescriptors() {
    setrlimit(RLIMIT_NOFILE, &limit_);
  }
  void give_back_one() {
    taken_.pop_back();
  }

 private:
  rlimit limit_{};
  std::vector<Descriptor> taken_;
};

TEST(StoreServer, SleepsWithoutADescriptorForAClient) {
  // A sanitizer starts its own thread with the first one.
  std::thread([] {}).join();
  const auto before = threads();
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  std::vector<std::string> own;
  const auto after = threads();
  std::set_difference(
      after.begin(), after.end(), before.begin(), before.end(),
      std::back_inserter(own));
  ASSERT_EQ(own.size(), 1u);
  const ThreadState thread(own[0]);
  Socket crowd;
  {
    NoDescriptors none;
    none.give_back_one();
    crowd = connect_raw(
        server.address(),
        frame(store_protocol::hello(std::string(store_protocol::kNonceBytes, 'n'))));
    // A server that polls in a loop would not be asleep this often.
    EXPECT_TRUE(eventually([&] {
      for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(Milliseconds(1));
        if (!thread.sleeps()) {
          return false;
        }
      }
      return true;
    }));
  }
  std::string answer(5, '?');
  EXPECT_TRUE(crowd.receive_all(answer.data(), answer.size(), Clock::now() + kLong));
  EXPECT_EQ(
      answer, frame(kOk + std::string(store_protocol::kNonceBytes, '?')).substr(0, 5));
}

}  // namespace tandem::store_server_test
