#include "tandem/comm/backends/group_formation.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/store/address_filter.h"
#include "tandem/base/store/socket.h"

namespace tandem {

namespace {

std::string numbered(const std::string& key, int rank) {
  return key + "/" + std::to_string(rank);
}

// Returns a rank's address, and all other addresses from which its machine may connect.
std::string addresses_of_machine(const std::string& address) {
  std::string all = address;
  for (const auto& own : interface_addresses()) {
    // Omits link-local addresses. A host of containers has many interfaces with such
    // addresses, and a filter can contain only a few hundred addresses.
    if (own.address.rfind("fe80:", 0) != 0) {
      all += " " + own.address;
    }
  }
  return all;
}

// Returns the addresses to which this process has connections.
std::set<std::string> peer_addresses() {
  std::set<std::string> found;
  for (const auto& name : list_directory("/proc/self/fd")) {
    const auto address = peer_address(std::atoi(name.c_str()));
    if (!address.empty()) {
      found.insert(address);
    }
  }
  return found;
}

}  // namespace

GroupFormation::GroupFormation(
    StoreClient& store, std::string name, int rank, int size,
    const std::string& address, std::chrono::milliseconds time)
    : store_(store),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      time_(time),
      known_(peer_addresses()) {
  // Waits before the first attempt, so that no attempt waits for a rank that has not
  // arrived.
  meet("here", addresses_of_machine(address));
  for (int other = 0; other < size; ++other) {
    std::istringstream words(store_.get(numbered(key("here"), other), time_.left()));
    ranks_.insert(std::istream_iterator<std::string>(words), {});
  }
}

std::chrono::milliseconds GroupFormation::time_for(int attempts_left) const {
  constexpr std::chrono::milliseconds kMost{20'000};
  const auto share = time_.left() / attempts_left;
  return std::max(
      std::chrono::milliseconds(1), attempts_left > 1 ? std::min(share, kMost) : share);
}

void GroupFormation::record_connections() {
  seen_.merge(peer_addresses());
}

std::string GroupFormation::outcome(
    const std::string& attempt, const std::string& error) {
  if (!error.empty()) {
    store_.compare_set(key(attempt + "/failed"), "", error);
    record_connections();
    for (const auto& address : seen_) {
      if (known_.count(address) + ranks_.count(address) == 0) {
        store_.compare_set(key("foreign"), "", address);
      }
    }
  }
  meet(attempt, "");
  return value_of(attempt + "/failed");
}

std::string GroupFormation::foreign_address() {
  return value_of("foreign");
}

std::string GroupFormation::key(const std::string& what) const {
  return name_ + "/" + what;
}

std::string GroupFormation::value_of(const std::string& what) {
  return store_.has({key(what)}) ? store_.get(key(what), {}) : "";
}

void GroupFormation::meet(const std::string& where, const std::string& value) {
  std::vector<std::string> all;
  for (int other = 0; other < size_; ++other) {
    all.push_back(numbered(key(where), other));
  }
  store_.set(all[static_cast<size_t>(rank_)], value);
  store_.wait(all, time_.left());
}

}  // namespace tandem
