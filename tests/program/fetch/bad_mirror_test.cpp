// Mirrors that fail: the next mirror is used, and wrong bytes are removed.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "fetching.h"

namespace tandem::bad_mirror_test {

const std::string kFile = file_bytes(50'000, 5);
const auto kSize = static_cast<int64_t>(kFile.size());

HttpAnswer html_page() {
  return {
      200,
      "<!DOCTYPE html>\n<html><body>Please log in</body></html>",
      {"Content-Type: text/html; charset=utf-8"}};
}

struct BadMirror {
  std::string name;
  // Answer to each request.
  HttpAnswer answer;
  // Reason in the message.
  std::string says;
};

using tandem::operator<<;

std::vector<BadMirror> bad_mirrors() {
  HttpAnswer longer{200, kFile + "x"};
  longer.length = -1;
  HttpAnswer less{200, kFile};
  less.length = kSize + 100;
  HttpAnswer hangs{200, kFile};
  hangs.hangs_after = 10'000;
  HttpAnswer silent{200, kFile};
  silent.hangs_after = 0;
  HttpAnswer slow{200, kFile};
  slow.pause = std::chrono::milliseconds(1500);
  HttpAnswer not_found = html_page();
  not_found.code = 404;
  HttpAnswer page_of_unknown_size = html_page();
  page_of_unknown_size.length = -1;
  HttpAnswer broken{200, kFile};
  broken.breaks_off_after = 0;
  return {
      {"NotFound", not_found, "answered 404"},
      {"Busy", {503, "later"}, "answered 503"},
      {"OtherBytes", {200, file_bytes(kFile.size(), 6)}, "sent other bytes: SHA-256 "},
      {"MoreBytes", longer, "sends more than the 50000 bytes"},
      {"LargerFile", {200, kFile + "x"}, "offers 50001 bytes instead of 50000"},
      {"SmallerFile", {200, "x"}, "offers 1 bytes instead of 50000"},
      {"EmptyFile", {200, ""}, "ended after 0 of the 50000 bytes"},
      {"LyingAboutTheSize", less, "offers 50100 bytes instead of 50000"},
      {"HtmlPage", html_page(), "answered with an HTML page"},
      {"HtmlPageOfUnknownSize", page_of_unknown_size, "answered with an HTML page"},
      {"RedirectToAFile",
       {302, "", {"Location: file:///etc/passwd"}},
       "Protocol \"file\""},
      {"RedirectToFtp", {301, "", {"Location: ftp://127.0.0.1/x"}}, "Protocol \"ftp\""},
      {"Hanging", hangs, "too slow"},
      {"Silent", silent, "too slow"},
      {"Slow", slow, "too slow"},
      {"BreakingOff", broken, "50000 bytes"},
  };
}

class FetchFrom : public FetchTest, public testing::WithParamInterface<BadMirror> {};

TEST_P(FetchFrom, UsesTheNextMirrorAfterAFailure) {
  const auto& bad = GetParam();
  const HttpServer server([&](const HttpRequest&) { return bad.answer; });
  const HttpServer good(server_of({{"file", kFile}}));
  write_mirrors(set_of("tiny", {server.url(), good.url()}, {{"file", kFile}}));
  const auto result = checked(fetch("tiny", {"--stall-seconds", "2"}));
  expect_parts(
      result.output, {server.url() + "/ ", bad.says, "trying the next mirror"});
  expect_files(scratch_ / "data/tiny", {{"file", kFile}});
}

INSTANTIATE_TEST_SUITE_P(
    Bad, FetchFrom, testing::ValuesIn(bad_mirrors()),
    testing::PrintToStringParamName());

class FetchFails : public FetchTest {};

TEST_F(FetchFails, WithOneLineThatNamesFilesAndFolder) {
  const HttpServer none(server_of({{"file", kFile}}));
  const HttpServer page([&](const HttpRequest&) { return html_page(); });
  write_mirrors(set_of(
      "tiny", {none.url(), page.url()},
      {{"file", kFile}, {"missing", file_bytes(9)}, {"more", file_bytes(10)}}));
  const auto result = fetch("tiny");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_EQ(
      result.errors,
      "tandem: error: [fetch] tiny is not fetched: no mirror has missing (" +
          none.url() + "/ answered 404, " + page.url() +
          "/ answered with an HTML page instead of the file); put missing, more into "
          "'" +
          (scratch_ / "data/tiny") +
          "' and run this again, or name another mirror in $TANDEM_MIRRORS\n");
  expect_files(scratch_ / "data/tiny", {{"file", kFile}});
}

TEST_F(FetchFails, AndRemovesWrongBytes) {
  HttpAnswer longer{200, file_bytes(kFile.size() + 1, 6)};
  longer.length = -1;
  for (const auto& answer : {HttpAnswer{200, file_bytes(kFile.size(), 6)}, longer}) {
    const HttpServer server([&](const HttpRequest&) { return answer; });
    write_mirrors(set_of("tiny", {server.url()}, {{"file", kFile}}));
    EXPECT_EQ(fetch("tiny").status.code, 1);
    EXPECT_FALSE(file_exists(scratch_ / "data/tiny"));
    EXPECT_EQ(server.requests().size(), 1u);
  }
}

// The bytes before the break are right, and half of a large file is worth keeping.
TEST_F(FetchFails, AndKeepsTheReceivedPart) {
  HttpAnswer broken{200, kFile};
  broken.breaks_off_after = 10'000;
  const HttpServer server([&](const HttpRequest&) { return broken; });
  write_mirrors(set_of("tiny", {server.url()}, {{"file", kFile}}));
  const auto result = fetch("tiny");
  EXPECT_EQ(result.status.code, 1);
  expect_files(scratch_ / "data/tiny", {{"file.part", kFile.substr(0, 10'000)}});
}

TEST_F(FetchFails, AndKeepsThePartIfTheServerSendsAPage) {
  const HttpServer page([&](const HttpRequest&) { return html_page(); });
  write_mirrors(set_of("tiny", {page.url()}, {{"file", kFile}}));
  make_directories(scratch_ / "data/tiny");
  replace_file(fetched("file.part"), kFile.substr(0, 10'000));
  const auto result = fetch("tiny");
  expect_exit(result, 1, {"answered with an HTML page"});
  expect_files(scratch_ / "data/tiny", {{"file.part", kFile.substr(0, 10'000)}});
}

TEST_F(FetchFails, IfTheProxyDoesNotAnswer) {
  // A port that is bound but not listened on, so that no other program uses it.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(fd, plain, size), 0);
  ASSERT_EQ(getsockname(fd, plain, &size), 0);
  const std::string nobody =
      "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  write_mirrors(set_of("tiny", {"http://mirror.invalid/"}, {{"file", kFile}}));
  auto behind = variables();
  behind.emplace_back("http_proxy", nobody);
  const auto result = tandem_run({"data", "fetch", "tiny"}, behind);
  close(fd);
  expect_exit(result, 1, {"http://mirror.invalid/ ", "127.0.0.1"});
}

// A link instead of the part could lead out of the folder.
TEST_F(FetchFails, IfThePartIsALink) {
  const HttpServer server(server_of({{"file", kFile}}));
  write_mirrors(set_of("tiny", {server.url()}, {{"file", kFile}}));
  make_directories(scratch_ / "data/tiny");
  replace_file(scratch_ / "precious", "precious");
  std::filesystem::create_symlink(scratch_ / "precious", fetched("file.part"));
  const auto result = fetch("tiny");
  expect_exit(result, 1, {"file.part"});
  EXPECT_EQ(read_file(scratch_ / "precious"), "precious");
}

}  // namespace tandem::bad_mirror_test
