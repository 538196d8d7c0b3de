#pragma once

#include <set>
#include <string>
#include <vector>

namespace tandem {

/// An address of this machine, as text, and the name of its network interface.
struct InterfaceAddress {
  std::string interface;
  std::string address;
};

/// Returns all addresses of this machine, including the loopback interface.
std::vector<InterfaceAddress> interface_addresses();

/// Limits which addresses can connect to ports that this process opens after the object
/// was constructed.
///
/// Use it for libraries that accept every connection as a rank. `apply()` attaches a
/// kernel filter to the listening TCP sockets that did not exist when the object was
/// constructed. The filter drops every packet from an address that is not in
/// `addresses` (IPv4 and IPv6, as text). So a connection from another address gets no
/// answer, as with a firewall. Sockets that are accepted later inherit the filter. If
/// `addresses` is empty, nothing is filtered.
///
/// The filter does not authenticate: addresses can be forged, and other users of these
/// machines have the same addresses. Thread-safe.
class AddressFilter {
 public:
  explicit AddressFilter(std::set<std::string> addresses);

  /// Attaches the filter to the listening sockets that did not exist at construction.
  /// Returns the number of these sockets. Returns 0 if the kernel does not support the
  /// filter, or if a filter for so many addresses would be too long.
  int apply() const;

 private:
  std::set<std::string> addresses_;
  std::set<int> before_;
};

}  // namespace tandem
