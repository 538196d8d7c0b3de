#pragma once

#include <chrono>
#include <set>
#include <string>

#include "tandem/base/deadline.h"
#include "tandem/base/store/store.h"

namespace tandem {

/// The ranks of a group that is to be, in the store under its name: all agree on which
/// attempt has made it, and on whether a stranger is to blame for those that have not.
/// Each rank has one; for one thread. Throws CommError where another rank does not come
/// within `time`.
class GroupFormation {
 public:
  /// Waits until all ranks have come. `address`: this rank's; `time`: of all attempts
  /// together. `store` outlives it.
  GroupFormation(
      StoreClient& store, std::string name, int rank, int size,
      const std::string& address, std::chrono::milliseconds time);

  /// Of all ranks' machines.
  const std::set<std::string>& addresses_of_ranks() const {
    return ranks_;
  }

  /// Of one attempt, so that there is time for those that may follow.
  std::chrono::milliseconds time_for(int attempts_left) const;

  /// Remembers whom this rank is connected with: Gloo closes what answers nothing.
  void look();

  /// `error`: why this rank's failed, "" if it did not. Returns why one did.
  std::string outcome(const std::string& attempt, const std::string& error);

  /// The address of one who connected in an attempt that failed, and is no rank; "".
  std::string stranger();

 private:
  std::string key(const std::string& what) const;
  std::string value_of(const std::string& what);
  void meet(const std::string& where, const std::string& value);

  StoreClient& store_;
  std::string name_;
  int rank_;
  int size_;
  Deadline time_;
  // Whom this rank talked to before.
  std::set<std::string> known_;
  std::set<std::string> seen_;
  std::set<std::string> ranks_;
};

}  // namespace tandem
