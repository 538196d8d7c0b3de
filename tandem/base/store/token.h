#pragma once

#include <string>
#include <utility>

#include "tandem/base/descriptor.h"

namespace tandem {

// The token is the text of a file that only this user can read. A process needs it to
// join a run over TCP, unless the run is insecure. The token is never sent
// (handshake.h), and appears on no command line and in no environment variable.

/// Settings that determine the token of a run.
struct TokenOptions {
  // Path of the token file; "": the path in TANDEM_TOKEN_FILE.
  std::string file;
  // True if every process that reaches the run may join it without a token.
  bool insecure = false;
};

/// Returns the text of a token file without white space at its end. Throws ConfigError,
/// with an action, if the file cannot be read, is empty, or is longer than 4096 bytes.
/// Also throws it if the file belongs to another user or is accessible to other users.
std::string read_token(const std::string& path);

/// The token file of a run whose ranks connect over TCP.
///
/// It is the file that TokenOptions or TANDEM_TOKEN_FILE names. Otherwise, if all ranks
/// are on this host, it is a file in a private directory of this user in
/// temporary_directory() (files.h). The directory is removed when the user's last
/// TokenFile, in any process, is destroyed. So keep the object as long as ranks may
/// join.
class TokenFile {
 public:
  /// Throws ConfigError, with instructions, if a run on several hosts has neither a
  /// token file nor TokenOptions::insecure. Also throws it if `options` has both, or if
  /// other users can access the private directory.
  [[nodiscard]] TokenFile(const TokenOptions& options, bool on_one_host);
  ~TokenFile();
  TokenFile(TokenFile&&) = default;
  TokenFile& operator=(TokenFile&&) = delete;

  /// Returns the absolute path of the token file; "" if the run has no token
  /// (TokenOptions::insecure).
  const std::string& path() const {
    return path_;
  }

  /// Returns the token; "" if the run has no token (TokenOptions::insecure).
  std::string token() const;

 private:
  std::string path_;
  // Private directory, and its descriptor. A lock on the descriptor marks the directory
  // as in use.
  std::string folder_;
  Descriptor folder_fd_;
};

/// Returns the name and value of the environment variable in which a launcher passes
/// the path `file` to its ranks.
std::pair<std::string, std::string> token_variable(const std::string& file);

/// Returns the token with which a rank connects to the store of tandem's launcher.
/// Returns "" if the launcher passed no token file, or for a Unix socket, whose
/// directory is closed to other users.
std::string launchers_token(const std::string& store_address);

/// Warns that the run at `address` accepts every process that reaches it.
void warn_of_no_token(const std::string& address);

}  // namespace tandem
