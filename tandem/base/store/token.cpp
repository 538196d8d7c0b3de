#include "tandem/base/store/token.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/sha256.h"
#include "tandem/base/store/handshake.h"

namespace tandem {

namespace {

constexpr const char* kVariable = "TANDEM_TOKEN_FILE";
constexpr size_t kMostTokenBytes = 4096;

bool is_open_to_others(const struct stat& info) {
  return (info.st_mode & (S_IRWXG | S_IRWXO)) != 0;
}

std::string mode_text(const struct stat& info) {
  char text[8];
  std::snprintf(text, sizeof(text), "%04o", info.st_mode & 07777);
  return text;
}

void check_token_file(const Descriptor& file, const std::string& path) {
  const std::string what = "[store] token file '" + path + "' ";
  struct stat info {};
  if (!file || fstat(file.fd(), &info) != 0) {
    throw ConfigError(
        what + "cannot be read: " + std::strerror(errno) +
        "; create it (umask 077; head -c 32 /dev/urandom | base64 > token), or correct "
        "--token-file or TANDEM_TOKEN_FILE");
  }
  if (!S_ISREG(info.st_mode)) {
    throw ConfigError(what + "is not a file; name a file with the token");
  }
  if (info.st_uid != geteuid()) {
    throw ConfigError(
        what + "belongs to user " + std::to_string(info.st_uid) +
        ", expected this user; use your own copy with mode 0600");
  }
  if (is_open_to_others(info)) {
    throw ConfigError(
        what + "has mode " + mode_text(info) + ", expected 0600; chmod 600 " + path);
  }
}

std::string private_folder() {
  return temporary_directory() + "/tandem-user-" + std::to_string(geteuid());
}

// Opens the private directory, after creating it if it is missing. Checks its owner and
// mode, because another user may have created a directory with this name. Returns an
// empty Descriptor if the caller should try again.
Descriptor open_private_folder(const std::string& path) {
  mkdir(path.c_str(), S_IRWXU);
  Descriptor folder(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!folder && errno == ENOENT &&
      (mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST)) {
    return Descriptor();
  }
  if (!folder || fstat(folder.fd(), &info) != 0) {
    throw ConfigError(
        "[store] cannot create the directory '" + path + "': " + std::strerror(errno) +
        "; set TMPDIR to your own directory, or TANDEM_TOKEN_FILE to a token file");
  }
  if (info.st_uid != geteuid() || is_open_to_others(info)) {
    throw ConfigError(
        "[store] '" + path + "' belongs to user " + std::to_string(info.st_uid) +
        " and has mode " + mode_text(info) +
        ", expected this user and mode 0700; remove it, or set TMPDIR to your own "
        "directory");
  }
  return folder;
}

// Opens and locks the private directory. Retries, because the last process that used
// the directory may be removing it.
Descriptor use_private_folder(const std::string& path) {
  for (;;) {
    Descriptor folder = open_private_folder(path);
    if (folder && flock(folder.fd(), LOCK_SH) == 0 && is_still_at(folder.fd(), path)) {
      return folder;
    }
  }
}

// Creates the token file with its content atomically. If another process has created
// the file first, link() keeps that file.
void make_token(const std::string& path) {
  const std::string secret = store_protocol::new_nonce();
  const std::string text = sha256_hex(secret.data(), secret.size()) + "\n";
  const std::string other = store_protocol::new_nonce();
  const std::string draft =
      path + "-" + sha256_hex(other.data(), other.size()).substr(0, 16);
  const Descriptor file(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) {
    throw DataError(
        "[files] cannot create '" + draft + "': " + std::strerror(errno) +
        "; set TMPDIR to your own directory");
  }
  write_all(file.fd(), text.data(), text.size(), draft);
  const bool made = link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
  const int reason = errno;
  unlink(draft.c_str());
  if (!made) {
    throw DataError("[files] cannot create '" + path + "': " + std::strerror(reason));
  }
}

}  // namespace

std::string read_token(const std::string& path) {
  // O_NONBLOCK, since opening a FIFO would block.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  check_token_file(file, path);
  std::string text(kMostTokenBytes + 1, '\0');
  const ssize_t got = read(file.fd(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos || text.size() > kMostTokenBytes) {
    throw ConfigError(
        "[store] token file '" + path + "' holds " +
        (text.size() > kMostTokenBytes ? "more than 4096 bytes" : "nothing") +
        "; create it again: umask 077; head -c 32 /dev/urandom | base64 > token");
  }
  return text.substr(0, last + 1);
}

TokenFile::TokenFile(const TokenOptions& options, bool on_one_host) {
  if (options.insecure) {
    if (!options.file.empty()) {
      throw ConfigError(
          "[store] --insecure uses no token, but --token-file names one; remove one of "
          "the two flags");
    }
    return;
  }
  const std::string file =
      options.file.empty() ? get_env(kVariable).value_or("") : options.file;
  if (!file.empty()) {
    path_ = std::filesystem::absolute(file).string();
    return;
  }
  if (!on_one_host) {
    throw ConfigError(
        "[store] ranks on several hosts need a token, and none is set; create one "
        "(umask 077; head -c 32 /dev/urandom | base64 > token), copy it to every host, "
        "and add --token-file token or set TANDEM_TOKEN_FILE (or --insecure, if every "
        "host on the network is trusted)");
  }
  folder_ = private_folder();
  folder_fd_ = use_private_folder(folder_);
  path_ = folder_ + "/token";
  if (!file_exists(path_)) {
    make_token(path_);
  }
}

TokenFile::~TokenFile() {
  if (folder_fd_ && flock(folder_fd_.fd(), LOCK_EX | LOCK_NB) == 0) {
    remove_all(folder_);
  }
}

std::string TokenFile::token() const {
  return path_.empty() ? "" : read_token(path_);
}

std::pair<std::string, std::string> token_variable(const std::string& file) {
  return {kVariable, file};
}

std::string launchers_token(const std::string& store_address) {
  const std::string file = get_env(kVariable).value_or("");
  return store_address.rfind("unix:", 0) == 0 || file.empty() ? "" : read_token(file);
}

void warn_of_no_token(const std::string& address) {
  log_warning(
      "[store] every process that reaches " + address +
      " can join and end this run, because of --insecure; use --token-file");
}

}  // namespace tandem
