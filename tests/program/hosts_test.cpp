// Two hosts: network namespaces with their own addresses, joined by a cable.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "program.h"

namespace tandem {
namespace {

using testing::HasSubstr;

CommandResult ip(const std::string& arguments) {
  return run_command({"/bin/sh", "-c", "ip " + arguments}, {}, 30);
}

// Two namespaces, 10.77.P.1 and 10.77.P.2 with P from our process id, so that two
// test runs do not meet. Removed at the end.
class TwoHosts {
 public:
  TwoHosts() : id_(std::to_string(getpid())), net_(std::to_string(getpid() % 250)) {
    ok_ = ip("netns add " + name(0)).status.ok() &&
          ip("netns add " + name(1)).status.ok() &&
          ip("link add " + cable(0) + " type veth peer name " + cable(1)).status.ok() &&
          plug(0) && plug(1);
  }
  ~TwoHosts() {
    ip("link del " + cable(0) + " 2>/dev/null");
    ip("netns del " + name(0) + " 2>/dev/null");
    ip("netns del " + name(1) + " 2>/dev/null");
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool ok() const {
    return ok_;
  }
  std::string address(int host) const {
    return "10.77." + net_ + "." + std::to_string(host + 1);
  }
  CommandResult run(int host, const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {"ip", "netns", "exec", name(host), program()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command, {}, 120);
  }

 private:
  std::string name(int host) const {
    return "tandem" + id_ + (host == 0 ? "a" : "b");
  }
  std::string cable(int host) const {
    return "td" + id_ + (host == 0 ? "a" : "b");
  }
  bool plug(int host) const {
    return ip("link set " + cable(host) + " netns " + name(host)).status.ok() &&
           ip("-n " + name(host) + " addr add " + address(host) + "/24 dev " +
              cable(host))
               .status.ok() &&
           ip("-n " + name(host) + " link set " + cable(host) + " up").status.ok() &&
           ip("-n " + name(host) + " link set lo up").status.ok();
  }

  std::string id_;
  std::string net_;
  bool ok_ = false;
};

TEST(Hosts, TwoHostsWithTwoRanksEachTrainTogether) {
  const TwoHosts hosts;
  if (!hosts.ok()) {
    GTEST_SKIP() << "no network namespaces (not root, or no ip command)";
  }
  const Scratch scratch;
  const auto arguments = [&](int host) {
    return std::vector<std::string>{
        "train",
        "--model",
        "simplenet",
        "--limit",
        "1280",
        "--nproc",
        "2",
        "--nnodes",
        "2",
        "--node-rank",
        std::to_string(host),
        "--master-addr",
        hosts.address(0),
        "--master-port",
        "29500",
        "--out",
        scratch / ("run" + std::to_string(host))};
  };
  CommandResult second;
  std::thread other([&] { second = hosts.run(1, arguments(1)); });
  const auto first = hosts.run(0, arguments(0));
  other.join();
  EXPECT_TRUE(first.status.ok()) << first.errors;
  EXPECT_TRUE(second.status.ok()) << second.errors;
  EXPECT_THAT(first.output, HasSubstr("4 ranks over gloo"));
  EXPECT_THAT(first.output, HasSubstr("/1280 ("));
  EXPECT_EQ(json_number(scratch / "run0/summary.json", "world_size"), 4);
  EXPECT_THAT(first.errors + second.errors, Not(HasSubstr("hostname")));
}

TEST(Hosts, AnUnknownMasterNameIsSaidInOneLine) {
  const auto result = tandem_run(
      {"train", "--limit", "64", "--timeout-seconds", "3"},
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "no-such-host.invalid"}});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("no-such-host.invalid"));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
}

TEST(Hosts, AnAbsentMasterIsSaidAfterTheTimeout) {
  const auto result = tandem_run(
      {"train", "--limit", "64", "--timeout-seconds", "1"},
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29877"}});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("127.0.0.1:29877"));
}

}  // namespace
}  // namespace tandem
