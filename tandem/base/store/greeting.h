#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// Returns tandem's version and, in brackets, a hash of its sources and of LibTorch's
/// version. Ranks with different build ids may compute different results.
std::string build_id();

/// Description of a process that takes part in a run.
struct Greeting {
  enum class Role { launcher, rank };
  Role role = Role::rank;
  // Rank, or number of the launcher's host.
  int number = 0;
  int world_size = 0;
  // Name of the backend, "" if it is unknown.
  std::string backend;
  // Name of the run (RankEnv::run), or "".
  std::string run;

  // Result of build_id(). greeting_of() sets this and the following members.
  std::string build;
  // Name of the host and process id, such as "NAME (pid 7)".
  std::string host;
  // Text that identifies the process: host_identity() and the process id.
  std::string identity;
};

/// Returns the greeting of this process, with its build, host and identity.
Greeting greeting_of(
    Greeting::Role role, int number, int world_size, const std::string& backend = "",
    const std::string& run = "");

/// Converts a greeting to the texts of a request (protocol.h), and back. from_texts()
/// returns nullopt if the texts are not a greeting.
std::vector<std::string> to_texts(const Greeting& greeting);
std::optional<Greeting> from_texts(const std::vector<std::string>& texts);

/// The processes that have sent a greeting to a run's store. Checks that their settings
/// match.
class RollCall {
 public:
  /// Adds a process. Returns "" if its settings match those of the other processes and
  /// no other process has its number. Otherwise, adds nothing and returns a message
  /// with the difference, both processes, and the change to make.
  std::string add(const Greeting& greeting);

  /// Removes a process, so that another process can use its rank or host number. Does
  /// nothing if all ranks have already arrived, because a launcher that replaces a lost
  /// launcher must not join the ranks of the lost launcher.
  void leave(const Greeting& greeting);

  /// Returns whether all ranks were present at the same time.
  bool complete() const {
    return complete_;
  }

  /// Returns the missing ranks, such as "rank 2 of 4". Returns "" if complete() is
  /// true, or if no process has greeted.
  std::string missing_ranks() const;

 private:
  // The launchers or the ranks. World sizes are compared only within a role: if the
  // hosts of a run may change, a launcher's greeting has the maximum number of ranks.
  struct Processes {
    // First greeting, with which add() compares later greetings.
    std::optional<Greeting> first;
    // Greetings of the processes that are present, by number.
    std::map<int, Greeting> present;
  };

  std::string difference(const Greeting& greeting);
  Processes& of_role(Greeting::Role role) {
    return role == Greeting::Role::rank ? ranks_ : launchers_;
  }

  Processes launchers_;
  Processes ranks_;
  std::optional<Greeting> first_with_backend_;
  std::optional<Greeting> first_with_run_;
  bool complete_ = false;
};

}  // namespace tandem
