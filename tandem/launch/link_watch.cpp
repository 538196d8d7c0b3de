#include "tandem/launch/link_watch.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/store/socket.h"

namespace tandem {

namespace {

// Key of the error, and of the address of a host.
constexpr const char* kBroken = "launch/link";

std::string address_key(int node) {
  return "launch/address/" + std::to_string(node);
}

// Converts an address of /proc/net/tcp or tcp6: one or four words of 32 bits in the
// byte order of the network, each printed as a number. Returns "" for other text.
std::string address_in(const std::string& hex) {
  constexpr size_t kDigits = 8;
  uint32_t words[4] = {};
  const size_t count = hex.size() / kDigits;
  if (hex.size() % kDigits != 0 || (count != 1 && count != 4)) {
    return "";
  }
  for (size_t i = 0; i < count; ++i) {
    if (std::sscanf(hex.substr(i * kDigits, kDigits).c_str(), "%8x", &words[i]) != 1) {
      return "";
    }
  }
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(count == 1 ? AF_INET : AF_INET6, words, text, sizeof(text));
  const std::string address = text;
  const std::string mapped = "::ffff:";
  return address.rfind(mapped, 0) == 0 ? address.substr(mapped.size()) : address;
}

std::string content_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<std::string> silent_peers(const std::string& table) {
  constexpr unsigned kEstablished = 1;
  // Running timers of a connection.
  constexpr unsigned kRetransmits = 1;
  constexpr unsigned kProbesWindow = 4;
  std::set<std::string> silent;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    char remote[64] = "";
    unsigned state = 0;
    unsigned timer = 0;
    unsigned retransmits = 0;
    unsigned user = 0;
    unsigned probes = 0;
    if (std::sscanf(
            line.c_str(), " %*d: %*s %40[0-9A-F]:%*x %x %*x:%*x %x:%*x %x %u %u",
            remote, &state, &timer, &retransmits, &user, &probes) != 6) {
      continue;
    }
    const unsigned unanswered = timer == kRetransmits    ? retransmits
                                : timer == kProbesWindow ? probes
                                                         : 0;
    if (state == kEstablished && unanswered > 0 && user == geteuid()) {
      silent.insert(address_in(remote));
    }
  }
  silent.erase("");
  return {silent.begin(), silent.end()};
}

void LinkWatch::look(const Store& store) {
  const auto now = Clock::now();
  if (now < next_ || !broken().empty()) {
    return;
  }
  next_ = now + std::chrono::seconds(1);
  if (address_.empty()) {
    publish_address(store);
  }
  // Any process of the run can write this line, so it is shortened and made printable.
  constexpr size_t kMostBytes = 300;
  auto line = printable(store.get(kBroken).value_or("").substr(0, kMostBytes));
  if (line.empty()) {
    line = find_broken(store);
    if (!line.empty()) {
      store.set(kBroken, line);
    }
  }
  if (!line.empty()) {
    log_warning(line);
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ = line;
  }
}

std::string LinkWatch::broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return broken_;
}

void LinkWatch::publish_address(const Store& store) {
  try {
    address_ = local_address_towards(master_addr_);
  } catch (const CommError&) {
    address_ = master_addr_;
  }
  store.set(address_key(node_), address_);
}

bool LinkWatch::has_waiting_rank() const {
  const auto statuses = board_.read();
  return std::any_of(statuses.begin(), statuses.end(), [](const auto& status) {
    return status.waiting_seconds >= 2;
  });
}

// Returns the error of a host that has acknowledged nothing for too long; "" if there
// is none.
std::string LinkWatch::find_broken(const Store& store) {
  // The kernel retransmits after 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s. Shorter times would
  // often pass in a network that loses a tenth of the packets.
  constexpr std::chrono::seconds kLongest{11};
  // HostWatch finds most broken links to host 0, and earlier.
  constexpr std::chrono::seconds kLongestToHost0{20};
  std::map<std::string, Clock::time_point> before;
  std::swap(before, silent_);
  if (!has_waiting_rank()) {
    return "";
  }
  const auto now = Clock::now();
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const auto& address : silent_peers(content_of(table))) {
      const auto found = before.find(address);
      silent_[address] = found == before.end() ? now : found->second;
    }
  }
  for (const int node : members_) {
    const auto address = store.get(address_key(node)).value_or("");
    const auto found = silent_.find(address);
    const auto most = node == 0 || node_ == 0 ? kLongestToHost0 : kLongest;
    if (node != node_ && found != silent_.end() && now - found->second >= most) {
      auto one = std::pair(node_, address_);
      auto other = std::pair(node, printable(address));
      if (other.first < one.first) {
        std::swap(one, other);
      }
      return fmt::format(
          "[launch] host {} at {} and host {} at {} have had no contact for {} s; "
          "check "
          "the network between them",
          one.first, one.second, other.first, other.second, most.count());
    }
  }
  return "";
}

}  // namespace tandem
