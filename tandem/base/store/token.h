#pragma once

#include <string>
#include <utility>

#include "tandem/base/store/socket.h"

namespace tandem {

/// Who may join a run over TCP: processes that know its token, the text of a file that
/// only this user can read. The token itself is never sent (handshake.h), and stands on
/// no command line and in no environment.

/// How the ranks of a run find its token.
struct TokenOptions {
  // The file, "": what TANDEM_TOKEN_FILE says.
  std::string file;
  // Ranks on several hosts may meet without one.
  bool insecure = false;
};

/// The text of a token file without white space at its end. Throws ConfigError that
/// says what to do unless the file is this user's, closed to all others, and holds
/// something.
std::string read_token(const std::string& path);

/// The file for ranks that meet over TCP: of `options`; else, where all ranks are on
/// this host, this user's own, in a directory that nobody else can enter below $TMPDIR
/// or /tmp. That is there while any process of the user holds one of these, so keep it
/// as long as ranks may come.
class TokenFile {
 public:
  /// Throws ConfigError that says how to make one where ranks are on several hosts and
  /// there is none, and where others can enter the directory.
  [[nodiscard]] TokenFile(const TokenOptions& options, bool on_one_host);
  ~TokenFile();
  TokenFile(TokenFile&&) = default;
  TokenFile& operator=(TokenFile&&) = delete;

  /// The whole path, "" for none (insecure).
  const std::string& path() const {
    return path_;
  }

  /// read_token(), or "" for none.
  std::string token() const;

 private:
  std::string path_;
  // Of our own directory, with a lock that says that it is in use.
  std::string folder_;
  Socket folder_fd_;
};

/// What a launcher gives its ranks so that they find the file, "" for none.
std::pair<std::string, std::string> token_variable(const std::string& file);

/// The token of the store that a launcher of ours runs, for one of its ranks. Over a
/// Unix socket it is "": the socket's directory is closed to others.
std::string launchers_token(const std::string& store_address);

/// Says that a run on several hosts is open to strangers.
void warn_of_no_token(const std::string& address);

}  // namespace tandem
