#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>

#include "tests/program/program.h"

namespace tandem {

/// Simulated hosts. Each host is a network namespace with its own address. A switch
/// connects the hosts with each other, but with no other network. The destructor
/// removes the hosts and the switch.
class Hosts {
 public:
  explicit Hosts(int count) : count_(count), id_(std::to_string(getpid())) {
    const std::string hub = " -n " + name(-1) + " ";
    ok_ = ip("netns add " + name(-1)) && ip(hub + "link add hub type bridge") &&
          ip(hub + "link set hub up");
    for (int host = 0; host < count_; ++host) {
      ok_ = ok_ && add(host);
    }
    replace_file(token_file(), token() + "\n");
    chmod(token_file().c_str(), 0600);
  }
  ~Hosts() {
    for (int host = -1; host < count_; ++host) {
      ip("netns del " + name(host) + " 2>/dev/null");
    }
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// Returns whether the hosts exist. Returns false if the process has no permission to
  /// make network namespaces.
  bool ok() const {
    return ok_;
  }
  std::string address(int host) const {
    return "10.77.0." + std::to_string(host + 1);
  }
  /// Returns the flags with which `nproc` ranks on a host take part in a run on `hosts`
  /// hosts. Host 0 is the rendezvous.
  std::vector<std::string> flags_of(int host, int nproc, int hosts) const {
    return {"--nproc",       std::to_string(nproc),
            "--nnodes",      std::to_string(hosts),
            "--node-rank",   std::to_string(host),
            "--master-addr", address(0),
            "--master-port", "29500"};
  }
  std::string token() const {
    return "the token of " + id_;
  }
  /// Returns the path of the file with the token that programs on these hosts use by
  /// default.
  std::string token_file() const {
    return scratch_ / "token";
  }
  /// Makes a folder that only host 0 has. On other hosts, programs that run() starts
  /// later see the empty folder storage_of(host) in its place.
  void keep_on_host_0(const std::string& folder) {
    kept_ = folder;
    make_directories(folder);
    for (int host = 1; host < count_; ++host) {
      make_directories(storage_of(host));
    }
  }
  std::string storage_of(int host) const {
    return scratch_ / ("storage" + std::to_string(host));
  }
  /// Returns the first words of a command that runs on a host.
  Arguments start_of(int host) const {
    return {"ip", "netns", "exec", name(host)};
  }
  /// Runs a program of tandem on a host.
  CommandResult run(
      int host, const Arguments& arguments, const Variables& variables = {},
      const std::string& own = "tandem") const {
    return run_any(host, with({program(own)}, arguments), variables);
  }
  /// Runs any command on a host.
  CommandResult run_any(
      int host, const Arguments& command, const Variables& variables = {}) const {
    auto words = start_of(host);
    if (!kept_.empty() && host > 0) {
      // `ip netns exec` has made a mount namespace for the command.
      const std::string mount = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
      words = with(words, {"sh", "-c", mount, "sh", storage_of(host), kept_});
    }
    Variables all = {{"TANDEM_TOKEN_FILE", token_file()}};
    all.insert(all.end(), variables.begin(), variables.end());
    return run_command(with(words, command), all, 600);
  }
  /// Disconnects a host from the switch. All later packets from and to the host are
  /// lost without an error.
  void unplug(int host) const {
    ip("-n " + name(-1) + " link set port" + std::to_string(host) + " down");
  }
  /// Disconnects two hosts from each other by a wrong hardware address on both.
  void cut(int one, int other) const {
    for (const auto& [here, there] : {std::pair(one, other), std::pair(other, one)}) {
      ip("-n " + name(here) + " neigh replace " + address(there) +
         " lladdr 02:00:00:00:00:99 dev eth0 nud permanent");
    }
  }
  /// Runs a function in a new thread on a host. Sockets that the thread makes belong to
  /// the network namespace of the host.
  void on(int host, const std::function<void()>& act) const {
    std::thread([&] {
      const int fd = open(("/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
      EXPECT_EQ(setns(fd, CLONE_NEWNET), 0);
      close(fd);
      act();
    }).join();
  }
  /// Runs tandem on all hosts at the same time. The arguments on host i are
  /// arguments(i).
  template <typename ArgumentsOf>
  std::vector<CommandResult> run_all(
      const ArgumentsOf& arguments, const Variables& variables = {}) const {
    return run_together(
        count_, [&](int host) { return run(host, arguments(host), variables); });
  }

 private:
  static bool ip(const std::string& arguments) {
    return run_command({"/bin/sh", "-c", "ip " + arguments}, {}, 30).status.ok();
  }
  // Returns the name of the namespace of a host, or of the switch if `host` is -1.
  std::string name(int host) const {
    return "tandem" + id_ + (host < 0 ? "hub" : std::string(1, char('a' + host)));
  }
  // Makes the namespace of a host, and a veth pair that connects it with the switch. In
  // the namespace of the switch, the interface has a name such as "port0" for host 0.
  bool add(int host) const {
    const std::string port = "port" + std::to_string(host);
    return ip("netns add " + name(host)) &&
           ip("-n " + name(-1) + " link add " + port +
              " type veth peer name eth0 netns " + name(host)) &&
           ip("-n " + name(-1) + " link set " + port + " master hub up") &&
           ip("-n " + name(host) + " addr add " + address(host) + "/24 dev eth0") &&
           ip("-n " + name(host) + " link set eth0 up") &&
           ip("-n " + name(host) + " link set lo up");
  }

  int count_;
  std::string id_;
  const Scratch scratch_;
  // Folder that only host 0 has; "" for none.
  std::string kept_;
  bool ok_ = false;
};

}  // namespace tandem

/// Skips the test if the hosts do not exist.
#define TANDEM_NEEDS_HOSTS(hosts)                                               \
  do {                                                                          \
    if (!(hosts).ok()) {                                                        \
      GTEST_SKIP()                                                              \
          << "no network namespaces; scripts/setup, then scripts/test as root"; \
    }                                                                           \
  } while (false)
