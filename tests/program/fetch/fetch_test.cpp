// `tandem data fetch` from correct web servers.

#include <filesystem>

#include "fetching.h"
#include "tandem/base/rank_env.h"

namespace tandem::fetch_test {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Files kFiles = {
    {"images", file_bytes(300'000, 1)}, {"labels", file_bytes(77, 2)}};

std::vector<std::string> paths_of(const std::vector<HttpRequest>& requests) {
  std::vector<std::string> paths;
  for (const auto& request : requests) {
    paths.push_back(request.path);
  }
  return paths;
}

class Fetch : public FetchTest {};

TEST_F(Fetch, WritesFilesWhereDataFindsThem) {
  const HttpServer server(server_of(kFiles));
  write_mirrors(set_of("tiny", {server.url()}, kFiles));
  const auto first = checked(fetch("tiny"));
  EXPECT_EQ(first.errors, "");
  EXPECT_THAT(
      first.output,
      AllOf(
          HasSubstr("images: 300.0 kB from " + server.url()),
          HasSubstr("labels: 77 bytes from"),
          EndsWith("to use it: --data " + (scratch_ / "data/tiny") + "\n")));
  expect_files(scratch_ / "data/tiny", kFiles);
  EXPECT_THAT(paths_of(server.requests()), ElementsAre("/images", "/labels"));

  const auto second = checked(fetch("tiny"));
  EXPECT_THAT(second.output, HasSubstr("already, with the right SHA-256: kept"));
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(Fetch, ReplacesOnlyFilesThatDiffer) {
  const HttpServer server(server_of(kFiles));
  write_mirrors(set_of("tiny", {server.url()}, kFiles));
  make_directories(scratch_ / "here");
  replace_file(scratch_ / "here/images", kFiles.at("images"));
  replace_file(scratch_ / "here/labels", file_bytes(77, 3));
  const auto result = checked(fetch("tiny", {"--to", scratch_ / "here"}));
  EXPECT_THAT(
      result.output, AllOf(
                         HasSubstr("images: there already"),
                         HasSubstr("labels: there, but with other bytes: replaced"),
                         EndsWith("to use it: --data " + (scratch_ / "here") + "\n")));
  expect_files(scratch_ / "here", kFiles);
  EXPECT_THAT(paths_of(server.requests()), ElementsAre("/labels"));
}

TEST_F(Fetch, ResumesAfterABrokenConnection) {
  const std::string file = kFiles.at("images");
  std::atomic<int> count{0};
  const HttpServer server([&](const HttpRequest& request) {
    auto answer = answer_with(file, request);
    if (++count < 3) {
      answer.breaks_off_after = 100'000;
    }
    return answer;
  });
  write_mirrors(set_of("tiny", {server.url()}, {{"images", file}}));
  checked(fetch("tiny"));
  expect_files(scratch_ / "data/tiny", {{"images", file}});
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].range, "");
  EXPECT_EQ(requests[1].range, "bytes=100000-");
  EXPECT_EQ(requests[2].range, "bytes=200000-");
}

TEST_F(Fetch, StartsAgainIfTheServerCannotResume) {
  const std::string file = kFiles.at("images");
  const std::vector<HttpAnswer> answers_to_range = {
      {200, file},
      {416, "no such range"},
      {206, file.substr(7), {"Content-Range: bytes 7-299999/300000"}}};
  for (const auto& answer_to_range : answers_to_range) {
    SCOPED_TRACE(answer_to_range.code);
    remove_all(scratch_ / "data/tiny");
    std::atomic<int> count{0};
    const HttpServer server([&](const HttpRequest& request) {
      HttpAnswer answer{200, file};
      if (++count == 1) {
        answer.breaks_off_after = 100'000;
      }
      return request.range.empty() ? answer : answer_to_range;
    });
    write_mirrors(set_of("tiny", {server.url()}, {{"images", file}}));
    checked(fetch("tiny"));
    expect_files(scratch_ / "data/tiny", {{"images", file}});
    const auto requests = server.requests();
    ASSERT_EQ(requests.size(), 3u);
    EXPECT_EQ(requests[1].range, "bytes=100000-");
    EXPECT_EQ(requests[2].range, "");
  }
}

TEST_F(Fetch, AnotherMirrorResumesThePartOfTheFirst) {
  const std::string file = kFiles.at("images");
  std::atomic<int> count{0};
  const HttpServer breaking([&](const HttpRequest& request) {
    auto answer = answer_with(file, request);
    answer.breaks_off_after = ++count == 1 ? 100'000 : 0;
    return answer;
  });
  const HttpServer good(server_of(kFiles));
  write_mirrors(set_of("tiny", {breaking.url(), good.url()}, {{"images", file}}));
  checked(fetch("tiny"));
  expect_files(scratch_ / "data/tiny", {{"images", file}});
  ASSERT_EQ(good.requests().size(), 1u);
  EXPECT_EQ(good.requests()[0].range, "bytes=100000-");
}

// Half of a file that already exists, and its expected content.
TEST_F(Fetch, StartsAgainIfThePartHasOtherBytes) {
  const std::string file = kFiles.at("images");
  const HttpServer server(server_of(kFiles));
  write_mirrors(set_of("tiny", {server.url()}, {{"images", file}}));
  // Half of the file, the whole file, and more than the file.
  for (const size_t size : {file.size() / 2, file.size(), file.size() + 1}) {
    remove_all(scratch_ / "data/tiny");
    make_directories(scratch_ / "data/tiny");
    replace_file(fetched("images.part"), file_bytes(size, 9));
    checked(fetch("tiny"));
    expect_files(scratch_ / "data/tiny", {{"images", file}});
    EXPECT_EQ(server.requests().back().range, "");
  }
  EXPECT_EQ(server.requests().size(), 4u);
}

TEST_F(Fetch, ResumesAfterAStop) {
  const std::string file = kFiles.at("images");
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    SCOPED_TRACE(signal);
    remove_all(scratch_ / "data/tiny");
    std::atomic<int> count{0};
    const HttpServer server([&](const HttpRequest& request) {
      auto answer = answer_with(file, request);
      if (++count == 1) {
        answer.hangs_after = 100'000;
      }
      return answer;
    });
    write_mirrors(set_of("tiny", {server.url()}, {{"images", file}}));
    Process process({{program(), "data", "fetch", "tiny"}, variables(), true});
    std::error_code ignored;
    while (fs::file_size(fetched("images.part"), ignored) != 100'000 &&
           !process.poll()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    process.signal(signal);
    const auto status = process.wait();
    if (signal == SIGKILL) {
      EXPECT_EQ(status.signal, SIGKILL);
    } else {
      EXPECT_EQ(status.code, 1);
    }
    EXPECT_TRUE(read_file(fetched("images.part")) == file.substr(0, 100'000));

    const auto next = checked(fetch("tiny"));
    EXPECT_THAT(next.output, HasSubstr("the rest of 300.0 kB after 100.0 kB"));
    expect_files(scratch_ / "data/tiny", {{"images", file}});
    EXPECT_EQ(server.requests().back().range, "bytes=100000-");
  }
}

// Reads the output of a process until it contains `text`.
bool says(Process& process, const std::string& text) {
  std::string said;
  for (bool all = false; said.find(text) == std::string::npos && !all;) {
    const bool ended = process.poll().has_value();
    char buffer[256];
    const ssize_t got = read(process.output_fd(), buffer, sizeof(buffer));
    said.append(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
    all = ended && got <= 0;
    if (got <= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return said.find(text) != std::string::npos;
}

TEST_F(Fetch, ASecondFetchWaitsForTheFirst) {
  const std::string file = kFiles.at("images");
  std::atomic<bool> both{false};
  const HttpServer server([&](const HttpRequest& request) {
    while (!both) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return answer_with(file, request);
  });
  write_mirrors(set_of("tiny", {server.url()}, {{"images", file}}));
  const ProcessOptions options = {
      {program(), "data", "fetch", "tiny"}, variables(), true};
  Process first(options);
  while (server.requests().empty() && !first.poll()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Process second(options);
  EXPECT_TRUE(says(second, "waiting for another process"));
  both = true;
  EXPECT_TRUE(says(second, "already, with the right SHA-256: kept"));
  EXPECT_TRUE(first.wait().ok());
  EXPECT_TRUE(second.wait().ok());
  expect_files(scratch_ / "data/tiny", {{"images", file}});
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(Fetch, AStalledFetchDoesNotBlockASecondForever) {
  const HttpServer server([&](const HttpRequest& request) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return answer_with(kFiles.at("images"), request);
  });
  write_mirrors(set_of("tiny", {server.url()}, {{"images", kFiles.at("images")}}));
  const Arguments command = {program(), "data", "fetch", "tiny"};
  Process first({command, variables(), true});
  while (server.requests().empty() && !first.poll()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(first.pid(), SIGSTOP);
  const auto second = run_command(with(command, {"--stall-seconds", "1"}), variables());
  EXPECT_EQ(second.status.describe(), "exited with code 1");
  EXPECT_THAT(second.errors, testing::HasSubstr("no data has arrived for 10 s"));
}

TEST_F(Fetch, FollowsARedirectToHttpAndResumesThere) {
  const HttpServer good(server_of(kFiles));
  const HttpServer first([&](const HttpRequest& request) {
    return HttpAnswer{302, "moved", {"Location: " + good.url() + request.path}};
  });
  write_mirrors(set_of("tiny", {first.url()}, kFiles));
  make_directories(scratch_ / "data/tiny");
  replace_file(fetched("images.part"), kFiles.at("images").substr(0, 1000));
  checked(fetch("tiny"));
  expect_files(scratch_ / "data/tiny", kFiles);
  ASSERT_EQ(good.requests().size(), 2u);
  EXPECT_EQ(good.requests()[0].range, "bytes=1000-");
}

TEST_F(Fetch, UsesTheMirrorOfTheLastFileFirst) {
  const HttpServer none(server_of({}));
  const HttpServer good(server_of(kFiles));
  write_mirrors(set_of("tiny", {none.url(), good.url()}, kFiles));
  checked(fetch("tiny"));
  EXPECT_EQ(none.requests().size(), 1u);
  EXPECT_EQ(good.requests().size(), 2u);
}

// A URL, a path, and half of a file in the folder.
TEST_F(Fetch, MirrorsMayBeFolders) {
  const std::string folder = scratch_ / "a mirror, 100% full";
  make_directories(folder);
  for (const auto& [name, bytes] : kFiles) {
    replace_file(folder + "/" + name, bytes);
  }
  fs::create_directory_symlink(folder, scratch_ / "link");
  for (const auto& url : {folder, "file://" + (scratch_ / "link")}) {
    SCOPED_TRACE(url);
    remove_all(scratch_ / "data/tiny");
    make_directories(scratch_ / "data/tiny");
    replace_file(fetched("images.part"), kFiles.at("images").substr(0, 1000));
    write_mirrors(set_of("tiny", {url}, kFiles));
    const auto result = checked(fetch("tiny"));
    EXPECT_THAT(result.output, HasSubstr("the rest of 300.0 kB after 1.0 kB"));
    expect_files(scratch_ / "data/tiny", kFiles);
  }
}

TEST_F(Fetch, UsesTheCacheIfTandemDataCannotBeWritten) {
  const HttpServer server(server_of(kFiles));
  write_mirrors(set_of("tiny", {server.url()}, kFiles));
  auto elsewhere = variables();
  elsewhere.emplace_back("TANDEM_DATA", scratch_ / "misspelt");
  const auto result = run_ok({"data", "fetch", "tiny"}, elsewhere);
  EXPECT_THAT(result.output, HasSubstr("not into $TANDEM_DATA, "));
  expect_files(scratch_ / "cache/tandem/tiny", kFiles);
  EXPECT_FALSE(file_exists(scratch_ / "misspelt"));
}

// Without the rights of root to write everywhere.
TEST_F(Fetch, RefusesAReadOnlyFolderBeforeTheDownload) {
  const HttpServer server(server_of(kFiles));
  write_mirrors(set_of("tiny", {server.url()}, kFiles));
  const std::string folder = scratch_ / "read-only";
  make_directories(folder);
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  const auto result = run_command(
      {"sh", "-c",
       "[ $(id -u) != 0 ] || exec setpriv --bounding-set=-dac_override \"$@\"\n"
       "exec \"$@\"",
       "sh", program(), "data", "fetch", "tiny", "--to", folder},
      variables());
  expect_exit(result, 1, {"cannot write into '" + folder, "--to"});
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST_F(Fetch, ShowsABarOnATerminalOnly) {
  const HttpServer server(server_of(kFiles));
  write_mirrors(set_of("tiny", {server.url()}, kFiles));
  auto on_terminal = variables();
  on_terminal.emplace_back("TERM", "xterm");
  const auto result = checked(run_command(
      {"script", "-qec", "'" + program() + "' data fetch tiny", "/dev/null"},
      on_terminal));
  expect_parts(result.output, {" % ", " MB/s"});
  remove_all(scratch_ / "data/tiny");
  const auto plain = fetch("tiny");
  EXPECT_THAT(plain.output + plain.errors, Not(HasSubstr(" MB/s")));
}

TEST_F(Fetch, ShowsItsHelp) {
  const auto help = checked(run({"data"}));
  EXPECT_THAT(help.output, HasSubstr("tandem data fetch NAME"));
  expect_parts(fetch("--help").output, {"mnist", "cifar-10", "--to"});
}

// This mirror packed MNIST itself, so the bytes have another SHA-256.
TEST_F(Fetch, DownloadsMnist) {
  const std::string mirror = get_env("TANDEM_DATA").value_or("/nonexistent") + "/mnist";
  if (!file_exists(mirror + "/t10k-labels-idx1-ubyte.gz")) {
    GTEST_SKIP() << "no MNIST in $TANDEM_DATA/mnist; tandem data fetch mnist, then "
                    "TANDEM_DATA=FOLDER scripts/test -R Fetch.DownloadsMnist";
  }
  Files files;
  for (const char* name :
       {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}) {
    files[name] = read_file(mirror + "/" + name);
  }
  write_mirrors(set_of("mnist", {mirror}, files));
  checked(fetch("mnist"));
  expect_files(scratch_ / "data/mnist", files);
  EXPECT_THAT(fetch("mnist").output, EndsWith("to use it: --data mnist\n"));
  const auto check = checked(run({"data", "info", "mnist"}));
  expect_parts(
      check.output, {"train: 60000 samples of 1x28x28, uint8; 10 classes\n",
                     "--mean 0.1307 --std 0.3081 ", "  class 0: 5923\n"});
}

}  // namespace tandem::fetch_test
