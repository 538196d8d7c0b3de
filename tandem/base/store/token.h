#pragma once

#include <string>
#include <utility>

#include "tandem/base/store/socket.h"

namespace tandem {

/// The token that a process needs to join a run over TCP: the text of a file that only
/// this user can read. The token itself is never sent (handshake.h), and appears on no
/// command line and in no environment variable.

/// Settings by which the ranks of a run find its token.
struct TokenOptions {
  // Path of the token file; "": the value of TANDEM_TOKEN_FILE.
  std::string file;
  // Ranks on several hosts may meet without a token.
  bool insecure = false;
};

/// Returns the text of a token file without white space at its end. Throws ConfigError,
/// with an action, unless the file belongs to this user, is closed to all others, and
/// is not empty.
std::string read_token(const std::string& path);

/// The token file for ranks that meet over TCP.
///
/// It is the file of `options`. Otherwise, if all ranks are on this host, it is a file
/// of this user in a private directory below $TMPDIR or /tmp. That directory exists
/// while any process of the user has such an object, so keep it as long as ranks may
/// join.
class TokenFile {
 public:
  /// Throws ConfigError, with instructions, if ranks are on several hosts and there is
  /// no token file, or if other users can enter the directory.
  [[nodiscard]] TokenFile(const TokenOptions& options, bool on_one_host);
  ~TokenFile();
  TokenFile(TokenFile&&) = default;
  TokenFile& operator=(TokenFile&&) = delete;

  /// Absolute path, "" without a token (insecure).
  const std::string& path() const {
    return path_;
  }

  /// Returns read_token(), or "" without a token.
  std::string token() const;

 private:
  std::string path_;
  // Private directory, and its descriptor with a lock while it is in use.
  std::string folder_;
  Socket folder_fd_;
};

/// Returns the environment variable by which a launcher passes the file to its ranks;
/// "" if there is no file.
std::pair<std::string, std::string> token_variable(const std::string& file);

/// Returns the token of the store that tandem's launcher runs, for one of its ranks.
/// For a Unix socket it is "": the socket's directory is closed to others.
std::string launchers_token(const std::string& store_address);

/// Warns that a run on several hosts accepts every process that reaches it.
void warn_of_no_token(const std::string& address);

}  // namespace tandem
