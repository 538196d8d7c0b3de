#pragma once

#include <optional>
#include <string>

#include "tandem/base/store/socket.h"

namespace tandem::store_protocol {

// Handshake by which both sides of a connection prove that they know the run's token,
// without sending it (protocol.h has the frames).
//
// Each proof is an HMAC-SHA256 with the token as key. It covers both nonces and the
// word "client" or "server", so a proof cannot be replayed or sent back to its sender.
// The client sends its proof first, so a client without the token gets no proof from
// the server.

constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = 32;
/// Maximum length of a frame in the handshake, in bytes.
constexpr size_t kMostHandshakeBytes = 64;

enum class Side { client, server };

/// Returns a new nonce: kNonceBytes random bytes from the kernel.
std::string new_nonce();

/// Returns the client's first frame: the protocol's name and version, and the client's
/// nonce.
std::string hello(const std::string& client_nonce);

/// Returns the nonce in a frame of hello(), nullopt for any other frame.
std::optional<std::string> nonce_of_hello(const std::string& hello);

/// Returns whether a frame is the hello of another protocol version.
bool is_other_version(const std::string& hello);

/// Returns the proof that `side` sends, of kProofBytes bytes.
std::string proof(
    Side side, const std::string& token, const std::string& client_nonce,
    const std::string& server_nonce);

/// Returns whether two texts are equal. The time of the comparison does not depend on
/// the position of the first difference.
bool is_same(const std::string& a, const std::string& b);

/// Result of a handshake, for the client.
enum class Handshake {
  ok,
  // No server that uses this protocol and knows the token answered.
  no_answer,
  // The server rejected the token.
  denied,
  // The server uses another protocol version.
  other_version,
};

/// Performs the client's side of the handshake on a new connection.
Handshake shake_hands(
    Socket& socket, const std::string& token, Socket::Deadline deadline);

}  // namespace tandem::store_protocol
