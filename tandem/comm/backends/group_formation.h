#pragma once

#include <chrono>
#include <set>
#include <string>

#include "tandem/base/deadline.h"
#include "tandem/base/store/store.h"

namespace tandem {

/// Coordinates the ranks that form a group, over the store.
///
/// All ranks agree on which attempt formed the group, and on whether a process that is
/// not a rank made attempts fail. Each rank has one object, for one thread. Throws
/// CommError if another rank does not arrive within `time`.
class GroupFormation {
 public:
  /// Waits until all ranks have arrived. `address`: of this rank. `time`: of all
  /// attempts together. `store` must outlive the object.
  GroupFormation(
      StoreClient& store, std::string name, int rank, int size,
      const std::string& address, std::chrono::milliseconds time);

  /// Addresses of all ranks' machines.
  const std::set<std::string>& addresses_of_ranks() const {
    return ranks_;
  }

  /// Returns the time for one attempt, which leaves time for the remaining attempts.
  std::chrono::milliseconds time_for(int attempts_left) const;

  /// Records the addresses to which this process is connected. Gloo closes connections
  /// that do not answer.
  void look();

  /// Reports this rank's error in an attempt, "" if it succeeded, and returns an error
  /// of any rank, "" if all succeeded.
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
  // Addresses to which this rank was connected before.
  std::set<std::string> known_;
  std::set<std::string> seen_;
  std::set<std::string> ranks_;
};

}  // namespace tandem
