// Ports and sockets of runs on one host, as docs/about/security.md lists them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "hosts.h"
#include "tests/program/program.h"
#include "workers.h"

namespace tandem::doors_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

// TCP ports and abstract Unix sockets on which a process listens, and the ports of its
// connections if `connected` is true.
std::vector<std::string> open_doors_of(pid_t pid, bool connected = false) {
  const auto folder = "/proc/" + std::to_string(pid);
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    std::error_code gone;
    const auto link = std::filesystem::read_symlink(entry.path(), gone).string();
    if (link.rfind("socket:[", 0) == 0) {
      own.insert(link.substr(8, link.size() - 9));
    }
  }
  std::vector<std::string> doors;
  for (const char* table : {"tcp", "tcp6", "unix"}) {
    for (const auto& line : split(read_file(folder + "/net/" + table), '\n')) {
      std::istringstream text(line);
      const std::vector<std::string> words(
          std::istream_iterator<std::string>(text), {});
      const bool is_unix = std::string(table) == "unix";
      const size_t inode = is_unix ? 6 : 9;
      const bool listens =
          is_unix ? words.size() > 7 && words[7][0] == '@'
                  : words.size() > 9 &&
                        (words[3] == "0A" || (connected && words[3] == "01"));
      if (listens && own.count(words[inode]) > 0) {
        doors.push_back(std::string(table) + " " + words[is_unix ? 7 : 1]);
      }
    }
  }
  return doors;
}

// Expects that neither the command line nor the environment of a process contains the
// text.
void expect_hidden(const std::string& text, pid_t pid) {
  for (const char* file : {"cmdline", "environ"}) {
    const auto content = read_file("/proc/" + std::to_string(pid) + "/" + file);
    EXPECT_FALSE(content.empty());
    EXPECT_EQ(content.find(text), std::string::npos) << file;
  }
}

TEST(Doors, RanksThatShareMemoryOpenNone) {
  for (const char* strategy : {"data_parallel", "pipeline", "parameter_server"}) {
    const Scratch scratch;
    const auto out = scratch / "run";
    const Process run(
        {{program(), "train", "--strategy", strategy, "--model", "convnet", "--limit",
          "640", "--epochs", "2000", "--nproc", "3", "--out", out},
         {},
         true});
    wait_until_it_reports(out);
    const auto workers = workers_of(out);
    EXPECT_EQ(workers.size(), 3u);
    for (const pid_t pid : workers) {
      EXPECT_THAT(open_doors_of(pid), IsEmpty());
    }
    // The socket for `tandem top`.
    EXPECT_THAT(open_doors_of(run.pid()), ElementsAre(StartsWith("unix @")));
  }
}

// Addresses in /proc/net/tcp are little-endian, so 0100007F is 127.0.0.1.
TEST(Doors, RanksOfOneHostOverGlooUseLoopback) {
  for (const char* strategy : {"averaging", "parameter_server"}) {
    const Scratch scratch;
    const auto out = scratch / "run";
    const Process run(
        {{program(), "train", "--backend", "gloo", "--strategy", strategy, "--model",
          "convnet", "--limit", "640", "--epochs", "2000", "--nproc", "3",
          "--metrics-port", unused_port(), "--out", out},
         {},
         true});
    wait_until_it_reports(out);
    auto processes = workers_of(out);
    EXPECT_EQ(processes.size(), 3u);
    processes.push_back(run.pid());
    for (const pid_t pid : processes) {
      const auto doors = open_doors_of(pid, true);
      EXPECT_FALSE(doors.empty()) << strategy;
      for (const auto& door : doors) {
        EXPECT_THAT(door, testing::MatchesRegex("tcp 0100007F:.*|unix @.*"))
            << strategy;
      }
    }
  }
}

// The hosts have loopback, too. 01004D0A is 10.77.0.1.
TEST(Doors, RanksOnSeveralHostsUseOnlyTheAddressOfTheRun) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  for (const char* strategy : {"data_parallel", "parameter_server"}) {
    const Scratch scratch;
    const auto out = scratch / "run";
    std::vector<std::unique_ptr<Process>> launchers;
    for (int host = 0; host < 2; ++host) {
      const auto arguments = with(
          hosts.start_of(host),
          {program(), "train", "--strategy", strategy, "--model", "convnet", "--limit",
           "640", "--epochs", "2000", "--out", out},
          hosts.flags_of(host, 2, 2));
      launchers.push_back(std::make_unique<Process>(ProcessOptions{
          arguments, {{"TANDEM_TOKEN_FILE", hosts.token_file()}}, true}));
    }
    wait_until_it_reports(out);
    const auto workers = workers_of(out);
    EXPECT_EQ(workers.size(), 4u);
    size_t count = 0;
    for (const pid_t pid : workers) {
      for (const auto& door : open_doors_of(pid, true)) {
        EXPECT_THAT(door, testing::MatchesRegex("tcp 0[12]004D0A:.*")) << strategy;
        ++count;
      }
      expect_hidden(hosts.token(), pid);
    }
    for (const auto& launcher : launchers) {
      expect_hidden(hosts.token(), launcher->pid());
    }
    EXPECT_GE(count, workers.size()) << strategy;
  }
}

}  // namespace tandem::doors_test
