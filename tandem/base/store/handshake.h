#pragma once

#include <optional>
#include <string>

#include "tandem/base/store/socket.h"

namespace tandem::store_protocol {

/// How both sides of a connection show each other that they know the run's token
/// without sending it (protocol.h has the frames). Each proof is an HMAC-SHA256 under
/// the token of a word for the side and of both sides' nonces, so none can be used
/// again, nor sent back to where it came from. The client's proof comes first: who only
/// connects learns nothing.

constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = 32;
/// What a connection that is not yet trusted may say at once.
constexpr size_t kMostHandshakeBytes = 64;

enum class Side { client, server };

/// Random bytes of the kernel.
std::string new_nonce();

/// The client's first frame.
std::string hello(const std::string& client_nonce);

/// The nonce in a hello of this protocol, nullopt for other bytes.
std::optional<std::string> nonce_of_hello(const std::string& hello);

/// Whether these bytes are the hello of another version of the protocol.
bool is_other_version(const std::string& hello);

std::string proof(
    Side side, const std::string& token, const std::string& client_nonce,
    const std::string& server_nonce);

/// Takes as long wherever the first difference is.
bool is_same(const std::string& a, const std::string& b);

enum class Handshake {
  ok,
  // Nothing that speaks this protocol and knows the token answers.
  no_answer,
  // The server does not take our token.
  denied,
  // The server speaks another version.
  other_version,
};

/// The client's part, on a new connection.
Handshake shake_hands(
    Socket& socket, const std::string& token, Socket::Deadline deadline);

}  // namespace tandem::store_protocol
