// The store's handshake.

#include "tandem/base/store/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <set>

#include "tests/base/store_tools.h"

namespace tandem::store_handshake_test {

using namespace store_protocol;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string reply_of(Socket& socket, size_t size) {
  std::string reply(size, '?');
  const bool all = socket.receive_all(reply.data(), size, Clock::now() + kLong);
  return all ? reply : "";
}

TEST(StoreHandshake, ProofsAreHmacSha256) {
  // Python's
  // hmac.new(b"run 7", b"tandem-store 3 client " + b"c" * 32 + b"s" * 32, "sha256").
  const std::string c(kNonceBytes, 'c');
  const std::string s(kNonceBytes, 's');
  std::string hex;
  for (const unsigned char byte : proof(Side::client, "run 7", c, s)) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    hex += digits;
  }
  EXPECT_EQ(hex, "86794751cc6e4947c60c2dab7045ff8c7b02798be701e66fe364f88a8e158d0c");
}

TEST(StoreHandshake, ProofsDependOnTokenSideAndNonces) {
  const std::string a(kNonceBytes, 'a');
  const std::string b(kNonceBytes, 'b');
  const std::set<std::string> proofs = {
      proof(Side::client, "x", a, b), proof(Side::server, "x", a, b),
      proof(Side::client, "y", a, b), proof(Side::client, "", a, b),
      proof(Side::client, "x", b, a), proof(Side::client, "x", a, a)};
  EXPECT_EQ(proofs.size(), 6u);
  EXPECT_NE(new_nonce(), new_nonce());
  EXPECT_TRUE(is_same(a, a));
  EXPECT_FALSE(is_same(a, b));
  EXPECT_FALSE(is_same(a, a + "a"));
}

TEST(StoreHandshake, AnotherTokenIsDeniedImmediately) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  for (const std::string token : {"run 8", "", "run 7 ", "run 77", "run"}) {
    EXPECT_THAT(
        error_of<DeniedError>(
            [&] { StoreClient(server.address(), Milliseconds(600'000), token); }),
        AllOf(HasSubstr(server.address()), HasSubstr("--token-file")))
        << token;
  }
  StoreClient client(server.address(), kLong, "run 7");
  expect_alive(client);
}

TEST(StoreHandshake, RequestsBeforeTheHandshakeGetNoAnswer) {
  StoreServer server("tcp:127.0.0.1:0", "run 7");
  server.set("key", "secret");
  const auto request = frame(encode({Operation::get, 0, {"key"}}));
  const auto greeting = frame(hello(std::string(kNonceBytes, 'n')));
  Socket at_once = connect_raw(server.address(), request);
  EXPECT_TRUE(closed_by_server(at_once));
  Socket after_hello = connect_raw(server.address(), greeting + request);
  EXPECT_EQ(reply_of(after_hello, 5 + kNonceBytes).size(), 5 + kNonceBytes);
  EXPECT_EQ(reply_of(after_hello, 5), frame(std::string(1, '\3')));
  EXPECT_TRUE(closed_by_server(after_hello));
  Socket after_denial = connect_raw(
      server.address(), greeting + frame(std::string(kProofBytes, 'p')) + request);
  EXPECT_EQ(reply_of(after_denial, 5 + kNonceBytes).size(), 5 + kNonceBytes);
  EXPECT_EQ(reply_of(after_denial, 5), frame(std::string(1, '\3')));
  EXPECT_EQ(reply_of(after_denial, 1), "");
}

TEST(StoreHandshake, TheTokenIsNeverSent) {
  auto listener = listen_at("tcp:127.0.0.1:0");
  auto sent = serve_one(listener, [](Socket& peer) {
    std::string hello_bytes;
    std::string proof_bytes;
    receive_frame(peer, hello_bytes, Clock::now() + kLong);
    send_frame(peer, std::string(1 + kNonceBytes, '\0'), Clock::now() + kLong);
    receive_frame(peer, proof_bytes, Clock::now() + kLong);
    return hello_bytes + proof_bytes;
  });
  Socket socket = connect_once(listener.address, Clock::now() + kLong);
  EXPECT_EQ(
      shake_hands(socket, "a secret", Clock::now() + kLong), Handshake::no_answer);
  const auto bytes = sent.get();
  EXPECT_EQ(bytes.size(), 15 + kNonceBytes + kProofBytes);
  EXPECT_THAT(bytes, Not(HasSubstr("secret")));
}

TEST(StoreHandshake, AServerThatReturnsTheClientsProofIsRejected) {
  auto listener = listen_at("tcp:127.0.0.1:0");
  auto mirror = serve_one(listener, [](Socket& peer) {
    std::string bytes;
    receive_frame(peer, bytes, Clock::now() + kLong);
    const std::string nonce = nonce_of_hello(bytes).value_or("");
    send_frame(peer, std::string(1, '\0') + nonce, Clock::now() + kLong);
    receive_frame(peer, bytes, Clock::now() + kLong);
    send_frame(peer, std::string(1, '\0') + bytes, Clock::now() + kLong);
  });
  Socket socket = connect_once(listener.address, Clock::now() + kLong);
  EXPECT_EQ(shake_hands(socket, "run 7", Clock::now() + kLong), Handshake::no_answer);
  mirror.get();
}

TEST(StoreHandshake, AProofIsValidForOneConnection) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  const std::string own(kNonceBytes, 'n');
  Socket first = connect_raw(server.address(), frame(hello(own)));
  const std::string challenge = reply_of(first, 5 + kNonceBytes).substr(5);
  const auto good = frame(proof(Side::client, "run 7", own, challenge));
  first.send_all(good.data(), good.size(), Clock::now() + kLong);
  EXPECT_EQ(
      reply_of(first, 5 + kProofBytes),
      frame(std::string(1, '\0') + proof(Side::server, "run 7", own, challenge)));
  Socket second = connect_raw(server.address(), frame(hello(own)) + good);
  EXPECT_NE(reply_of(second, 5 + kNonceBytes).substr(5), challenge);
  EXPECT_EQ(reply_of(second, 5), frame(std::string(1, '\3')));
}

// Otherwise a server that has heard one client could answer the next.
TEST(StoreHandshake, AClientUsesANewNonceEachTime) {
  auto listener = listen_at("tcp:127.0.0.1:0");
  std::set<std::string> heard;
  for (int i = 0; i < 2; ++i) {
    auto server = serve_one(listener, [](Socket& peer) {
      std::string bytes;
      receive_frame(peer, bytes, Clock::now() + kLong);
      return nonce_of_hello(bytes).value_or("");
    });
    Socket socket = connect_once(listener.address, Clock::now() + kLong);
    EXPECT_EQ(shake_hands(socket, "run 7", Clock::now() + kLong), Handshake::no_answer);
    heard.insert(server.get());
  }
  EXPECT_EQ(heard.size(), 2u);
}

TEST(StoreHandshake, AnotherVersionIsReported) {
  const StoreServer server("tcp:127.0.0.1:0", "run 7");
  Socket old = connect_raw(server.address(), frame("tandem-store 1 run 7"));
  EXPECT_EQ(reply_of(old, 5), frame(std::string(1, '\4')));
  EXPECT_TRUE(closed_by_server(old));
  auto listener = listen_at("tcp:127.0.0.1:0");
  auto newer = serve_one(listener, [](Socket& peer) {
    std::string bytes;
    receive_frame(peer, bytes, Clock::now() + kLong);
    send_frame(peer, std::string(1, '\4'), Clock::now() + kLong);
  });
  expect_error<ConfigError>(
      [&] { StoreClient(listener.address, kLong, "run 7"); },
      {listener.address, "version"});
  newer.get();
}

}  // namespace tandem::store_handshake_test
