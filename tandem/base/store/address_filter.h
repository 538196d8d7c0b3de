#pragma once

#include <set>
#include <string>
#include <vector>

namespace tandem {

/// An address of this machine, as text, and the name of the interface that has it.
struct InterfaceAddress {
  std::string interface;
  std::string address;
};

/// All of them, the loopback's too.
std::vector<InterfaceAddress> interface_addresses();

/// Whom the ports answer that this process opens while the object lives: a library's
/// that takes whoever connects for a rank. `apply()` gives the sockets that listen for
/// TCP connections by then, and did not when the object was made, a filter by which the
/// kernel drops every packet that comes from none of `addresses` (IPv4 and IPv6, as
/// text; none: all are answered): whoever connects from elsewhere gets no answer, as
/// from a port that a firewall closes. Sockets that are accepted later have the filter
/// too. An address can be forged, and other users of these machines have the same ones:
/// this keeps strangers away, it does not say who somebody is. Thread-safe.
class AddressFilter {
 public:
  explicit AddressFilter(std::set<std::string> addresses);

  /// Returns how many sockets have the filter; none where the kernel has no such
  /// filters, or no room for so many addresses.
  int apply() const;

 private:
  std::set<std::string> addresses_;
  std::set<int> before_;
};

}  // namespace tandem
