// Sources of a run's token, and files that are rejected.

#include "tandem/base/store/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <vector>

#include "tests/base/test_tools.h"

namespace tandem::store_token_test {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string path_of(const TokenOptions& options, bool on_one_host) {
  return TokenFile(options, on_one_host).path();
}

class Token : public testing::Test {
 protected:
  Token() {
    setenv("TMPDIR", folder_.path().c_str(), 1);
    unsetenv("TANDEM_TOKEN_FILE");
  }
  ~Token() override {
    unsetenv("TMPDIR");
    unsetenv("TANDEM_TOKEN_FILE");
  }

  std::string file(const std::string& text, mode_t mode) const {
    const std::string path = folder_ / "a-token";
    replace_file(path, text);
    chmod(path.c_str(), mode);
    return path;
  }
  std::string own_folder() const {
    return folder_ / ("tandem-user-" + std::to_string(geteuid()));
  }

  Scratch folder_;
};

TEST_F(Token, IsTheTextOfItsFile) {
  EXPECT_EQ(read_token(file("abc=\n", 0600)), "abc=");
  EXPECT_EQ(read_token(file("abc=", 0400)), "abc=");
  EXPECT_EQ(read_token(file("a b\r\n\n", 0600)), "a b");
}

TEST_F(Token, AFileThatOthersCanReadIsRejected) {
  for (const mode_t mode : {0644, 0640, 0620, 0601, 0660, 0604}) {
    const auto path = file("abc", mode);
    EXPECT_THAT(
        error_of<ConfigError>([&] { read_token(path); }),
        AllOf(HasSubstr("expected 0600"), EndsWith("chmod 600 " + path)))
        << mode;
  }
}

TEST_F(Token, AFileOfAnotherUserIsRejected) {
  const auto path = file("abc", 0600);
  if (chown(path.c_str(), 1234, 1234) != 0) {
    GTEST_SKIP() << "only root gives files away; as root: scripts/test -R Token";
  }
  expect_error<ConfigError>([&] { read_token(path); }, {"user 1234"});
}

TEST_F(Token, AnEmptyFileIsRejected) {
  for (const std::string text : {"", "\n", " \t\n"}) {
    expect_error<ConfigError>(
        [&] { read_token(file(text, 0600)); }, {"holds nothing", "/dev/urandom"});
  }
  expect_error<ConfigError>(
      [&] { read_token(file(std::string(5000, 'x'), 0600)); }, {"4096"});
}

TEST_F(Token, APathThatIsNotAFileIsRejected) {
  expect_error<ConfigError>(
      [&] { read_token(folder_ / "none"); }, {"none", "No such file", "umask 077"});
  expect_error<ConfigError>([&] { read_token(folder_.path()); }, {"is not a file"});
  mkfifo((folder_ / "fifo").c_str(), 0600);
  expect_error<ConfigError>([&] { read_token(folder_ / "fifo"); }, {"is not a file"});
}

TEST_F(Token, TheFlagOverridesTheVariable) {
  setenv("TANDEM_TOKEN_FILE", "/of/the/variable", 1);
  EXPECT_EQ(path_of({}, false), "/of/the/variable");
  EXPECT_EQ(path_of({}, true), "/of/the/variable");
  EXPECT_EQ(path_of({"/of/the/flag", false}, false), "/of/the/flag");
  EXPECT_THAT(path_of({"near", false}, false), StartsWith("/"));
  EXPECT_EQ(path_of({"", true}, false), "");
}

TEST_F(Token, SeveralHostsNeedAToken) {
  expect_error<ConfigError>(
      [] { path_of({}, false); },
      {"umask 077; head -c 32 /dev/urandom | base64 > token", "--token-file",
       "TANDEM_TOKEN_FILE", "--insecure"});
  expect_error<ConfigError>([] { path_of({"token", true}, false); }, {"--insecure"});
}

TEST_F(Token, OnOneHostAUserHasAPrivateToken) {
  const TokenFile file({}, true);
  EXPECT_THAT(file.path(), StartsWith(folder_.path()));
  EXPECT_EQ(file.token().size(), 64u);
  EXPECT_EQ(TokenFile({}, true).token(), file.token());
  struct stat info {};
  ASSERT_EQ(stat(own_folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(list_directory(own_folder()).size(), 1u);
}

TEST_F(Token, TheLastProcessRemovesTheToken) {
  auto first = std::make_unique<TokenFile>(TokenOptions(), true);
  auto second = std::make_unique<TokenFile>(TokenOptions(), true);
  const auto token = first->token();
  first.reset();
  EXPECT_EQ(second->token(), token);
  second.reset();
  EXPECT_FALSE(file_exists(own_folder()));
  EXPECT_NE(TokenFile({}, true).token(), token);
}

TEST_F(Token, ConcurrentProcessesGetTheSameToken) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::future<std::unique_ptr<TokenFile>>> all;
    for (int i = 0; i < 4; ++i) {
      all.push_back(std::async(std::launch::async, [] {
        return std::make_unique<TokenFile>(TokenOptions(), true);
      }));
    }
    std::vector<std::unique_ptr<TokenFile>> files;
    for (auto& one : all) {
      files.push_back(one.get());
      EXPECT_EQ(files.back()->token(), files.front()->token());
    }
    EXPECT_EQ(list_directory(own_folder()).size(), 1u);
  }
  EXPECT_TRUE(list_directory(folder_.path()).empty());
}

TEST_F(Token, ADirectoryThatOthersCanEnterIsRejected) {
  mkdir(own_folder().c_str(), 0755);
  chmod(own_folder().c_str(), 0755);
  expect_error<ConfigError>([] { path_of({}, true); }, {"mode 0755", "TMPDIR"});
}

TEST_F(Token, ADirectoryOfAnotherUserIsRejected) {
  mkdir(own_folder().c_str(), 0700);
  if (chown(own_folder().c_str(), 1234, 1234) != 0) {
    GTEST_SKIP() << "only root gives files away; as root: scripts/test -R Token";
  }
  expect_error<ConfigError>(
      [] { path_of({}, true); }, {"belongs to user 1234", "TMPDIR"});
}

TEST_F(Token, ASymbolicLinkIsRejected) {
  const Scratch elsewhere;
  ASSERT_EQ(symlink(elsewhere.path().c_str(), own_folder().c_str()), 0);
  EXPECT_THROW(path_of({}, true), ConfigError);
  EXPECT_TRUE(list_directory(elsewhere.path()).empty());
}

}  // namespace tandem::store_token_test
