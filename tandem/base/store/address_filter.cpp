#include "tandem/base/store/address_filter.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tandem/base/files.h"

namespace tandem {

namespace {

constexpr uint32_t kDrop = 0;
constexpr uint32_t kAdmit = 0xffffffff;

// Offset of the source address in the headers of IPv4 and IPv6.
constexpr int kSource4 = 12;
constexpr int kSource6 = 8;

using Words6 = std::array<uint32_t, 4>;

struct Sources {
  std::vector<uint32_t> four;
  std::vector<Words6> six;
};

Sources parse(const std::set<std::string>& addresses) {
  Sources found;
  for (const auto& address : addresses) {
    in_addr four{};
    in6_addr six{};
    Words6 words{};
    if (inet_pton(AF_INET, address.c_str(), &four) == 1) {
      found.four.push_back(ntohl(four.s_addr));
    } else if (inet_pton(AF_INET6, address.c_str(), &six) == 1) {
      std::memcpy(words.data(), &six, sizeof(six));
      std::transform(words.begin(), words.end(), words.begin(), ntohl);
      if (IN6_IS_ADDR_V4MAPPED(&six)) {
        found.four.push_back(words[3]);
      } else {
        found.six.push_back(words);
      }
    }
  }
  return found;
}

// A program for the kernel's classic packet filter (Documentation/networking/filter).
// It runs for each packet of a connection, with two instructions per IPv4 address and
// nine per IPv6 address.
class Filter {
 public:
  explicit Filter(const Sources& admitted) {
    load(BPF_B, 0);
    add(BPF_ALU | BPF_RSH | BPF_K, 4, 0, 0);
    equal_or_skip(6, 1);
    add(BPF_JMP | BPF_JA, static_cast<uint32_t>(2 + 2 * admitted.four.size()), 0, 0);
    load(BPF_W, kSource4);
    for (const auto& address : admitted.four) {
      equal_or_skip(address, 1);
      add(BPF_RET | BPF_K, kAdmit, 0, 0);
    }
    add(BPF_RET | BPF_K, kDrop, 0, 0);
    for (const auto& address : admitted.six) {
      admit6(address);
    }
    add(BPF_RET | BPF_K, kDrop, 0, 0);
  }

  bool attach(int fd) {
    if (code_.size() > BPF_MAXINSNS) {
      return false;
    }
    sock_fprog program{};
    program.len = static_cast<unsigned short>(code_.size());
    program.filter = code_.data();
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
  }

 private:
  // Adds the instructions for an IPv6 address. If one of its words differs, the program
  // skips the remaining words.
  void admit6(const Words6& address) {
    size_t rest = 2 * address.size() + 1;
    for (size_t i = 0; i < address.size(); ++i) {
      load(BPF_W, kSource6 + static_cast<int>(4 * i));
      rest -= 2;
      equal_or_skip(address[i], rest);
    }
    add(BPF_RET | BPF_K, kAdmit, 0, 0);
  }

  void add(int code, uint32_t value, size_t if_true, size_t if_false) {
    code_.push_back(
        {static_cast<uint16_t>(code), static_cast<uint8_t>(if_true),
         static_cast<uint8_t>(if_false), value});
  }
  void load(int size, int at) {
    add(BPF_LD | BPF_ABS | size, static_cast<uint32_t>(SKF_NET_OFF + at), 0, 0);
  }
  void equal_or_skip(uint32_t value, size_t instructions) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, instructions);
  }

  std::vector<sock_filter> code_;
};

bool listens_for_tcp(int fd) {
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  const int domain = option(SO_DOMAIN);
  return option(SO_ACCEPTCONN) == 1 && option(SO_TYPE) == SOCK_STREAM &&
         (domain == AF_INET || domain == AF_INET6);
}

std::set<int> listening_sockets() {
  std::set<int> found;
  for (const auto& name : list_directory("/proc/self/fd")) {
    const int fd = std::atoi(name.c_str());
    if (listens_for_tcp(fd)) {
      found.insert(fd);
    }
  }
  return found;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* all = nullptr;
  std::vector<InterfaceAddress> found;
  if (getifaddrs(&all) != 0) {
    return found;
  }
  for (const auto* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const int family =
        entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    char text[INET6_ADDRSTRLEN] = "";
    if (family == AF_INET) {
      const auto* ip = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      inet_ntop(AF_INET, &ip->sin_addr, text, sizeof(text));
    } else if (family == AF_INET6) {
      const auto* ip = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      inet_ntop(AF_INET6, &ip->sin6_addr, text, sizeof(text));
    }
    if (text[0] != '\0') {
      found.push_back({entry->ifa_name, text});
    }
  }
  freeifaddrs(all);
  return found;
}

AddressFilter::AddressFilter(std::set<std::string> addresses)
    : addresses_(std::move(addresses)) {
  if (!addresses_.empty()) {
    before_ = listening_sockets();
  }
}

int AddressFilter::apply() const {
  if (addresses_.empty()) {
    return 0;
  }
  Filter filter(parse(addresses_));
  int count = 0;
  for (const int fd : listening_sockets()) {
    count += before_.count(fd) == 0 && filter.attach(fd) ? 1 : 0;
  }
  return count;
}

}  // namespace tandem
