#pragma once

#include <chrono>
#include <set>
#include <string>

#include "tandem/base/deadline.h"
#include "tandem/base/store/store.h"

namespace tandem {

/// Coordinates the attempts of ranks to form a group. The ranks communicate through the
/// store.
///
/// All ranks agree on the attempt that formed the group, and on whether a process that
/// is not a rank made attempts fail. Each rank has one object and uses it on one
/// thread. Functions that wait throw CommError if another rank does not arrive in time.
class GroupFormation {
 public:
  /// Waits until all ranks have arrived. `address` is this rank's address. `time` is
  /// the timeout of all attempts together. `store` must outlive the object.
  GroupFormation(
      StoreClient& store, std::string name, int rank, int size,
      const std::string& address, std::chrono::milliseconds time);

  /// Returns all IP addresses of the hosts that run ranks.
  const std::set<std::string>& addresses_of_ranks() const {
    return ranks_;
  }

  /// Returns the timeout of the next attempt: the remaining time divided by
  /// `attempts_left`, but at most 20 s unless it is the last attempt.
  std::chrono::milliseconds time_for(int attempts_left) const;

  /// Records the addresses to which this process is connected. Call it directly after
  /// an attempt has connected the ranks, because Gloo closes connections that do not
  /// answer.
  void record_connections();

  /// Reports this rank's error in an attempt ("" for success) and waits for the other
  /// ranks. Returns the first error of any rank, or "" if the attempt succeeded on all
  /// ranks.
  std::string outcome(const std::string& attempt, const std::string& error);

  /// Returns an address that connected in a failed attempt and does not belong to a
  /// rank, or "".
  std::string foreign_address();

 private:
  std::string key(const std::string& what) const;
  std::string value_of(const std::string& what);
  void meet(const std::string& where, const std::string& value);

  StoreClient& store_;
  std::string name_;
  int rank_;
  int size_;
  Deadline time_;
  // Addresses to which this process was connected before the first attempt.
  std::set<std::string> known_;
  std::set<std::string> seen_;
  std::set<std::string> ranks_;
};

}  // namespace tandem
