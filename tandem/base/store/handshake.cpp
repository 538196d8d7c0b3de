#include "tandem/base/store/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "tandem/base/error.h"
#include "tandem/base/store/protocol.h"

namespace tandem::store_protocol {

namespace {

const std::string kName = "tandem-store ";
const std::string kVersion = std::to_string(kProtocolVersion);

}  // namespace

std::string new_nonce() {
  std::string nonce(kNonceBytes, '\0');
  ssize_t got = 0;
  do {
    got = getrandom(nonce.data(), nonce.size(), 0);
  } while (got < 0 && errno == EINTR);
  TANDEM_CHECK(
      got == static_cast<ssize_t>(kNonceBytes), "the kernel returned no random bytes");
  return nonce;
}

std::string hello(const std::string& client_nonce) {
  return kName + kVersion + " " + client_nonce;
}

std::optional<std::string> nonce_of_hello(const std::string& bytes) {
  const std::string start = hello("");
  if (bytes.size() != start.size() + kNonceBytes || bytes.rfind(start, 0) != 0) {
    return std::nullopt;
  }
  return bytes.substr(start.size());
}

bool is_other_version(const std::string& bytes) {
  return bytes.rfind(kName, 0) == 0 && bytes.rfind(hello(""), 0) != 0;
}

std::string proof(
    Side side, const std::string& token, const std::string& client_nonce,
    const std::string& server_nonce) {
  const std::string text = kName + kVersion +
                           (side == Side::client ? " client " : " server ") +
                           client_nonce + server_nonce;
  std::string code(kProofBytes, '\0');
  unsigned int size = 0;
  const auto* made = HMAC(
      EVP_sha256(), token.data(), static_cast<int>(token.size()),
      reinterpret_cast<const unsigned char*>(text.data()), text.size(),
      reinterpret_cast<unsigned char*>(code.data()), &size);
  TANDEM_CHECK(
      made != nullptr && size == kProofBytes, "OpenSSL cannot compute HMAC-SHA256");
  return code;
}

bool is_same(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Handshake shake_hands(
    Socket& socket, const std::string& token, Socket::Deadline deadline) {
  const std::string own = new_nonce();
  std::string reply;
  if (!send_frame(socket, hello(own), deadline) ||
      !receive_frame(socket, reply, deadline, 1 + kNonceBytes)) {
    return Handshake::no_answer;
  }
  if (static_cast<Status>(reply[0]) == Status::other_version) {
    return Handshake::other_version;
  }
  const std::string other = reply.substr(1);
  if (static_cast<Status>(reply[0]) != Status::ok || other.size() != kNonceBytes ||
      !send_frame(socket, proof(Side::client, token, own, other), deadline) ||
      !receive_frame(socket, reply, deadline, 1 + kProofBytes)) {
    return Handshake::no_answer;
  }
  if (static_cast<Status>(reply[0]) == Status::denied) {
    return Handshake::denied;
  }
  return static_cast<Status>(reply[0]) == Status::ok &&
                 is_same(reply.substr(1), proof(Side::server, token, own, other))
             ? Handshake::ok
             : Handshake::no_answer;
}

}  // namespace tandem::store_protocol
