#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// What a process says of itself before it takes part in a run.
struct Greeting {
  enum class Role { launcher, rank };
  Role role = Role::rank;
  // The rank, or a launcher's number of its host.
  int number = 0;
  int world_size = 0;
  // "" where it is not known.
  std::string backend;
  // Name of the run (RankEnv::run), "" for none.
  std::string run;

  // Filled in by greeting_of().
  std::string build;
  std::string host;
  // The process, as nobody else is called.
  std::string identity;
};

/// This process's greeting.
Greeting greeting_of(
    Greeting::Role role, int number, int world_size, const std::string& backend = "",
    const std::string& run = "");

/// As texts of a request (protocol.h), and back; nullopt for other texts.
std::vector<std::string> to_texts(const Greeting& greeting);
std::optional<Greeting> from_texts(const std::vector<std::string>& texts);

/// Who has greeted a run's store, and whether they fit together.
class RollCall {
 public:
  /// Notes who is there. Returns what does not fit, as one line that names both sides
  /// and says what to change; "" where all does.
  std::string add(const Greeting& greeting);

  /// A process has gone: until all were there, another may take its place.
  void leave(const Greeting& greeting);

  /// Whether all ranks have been there at once.
  bool complete() const {
    return complete_;
  }

  /// Returns the missing ranks, as "rank 2 of 4"; "" when complete(), and while the
  /// number of ranks is unknown.
  std::string missing_ranks() const;

 private:
  std::string difference(const Greeting& greeting) const;

  // The first that said each thing.
  std::optional<Greeting> first_;
  std::optional<Greeting> first_with_backend_;
  std::optional<Greeting> first_with_run_;
  std::map<int, Greeting> launchers_;
  std::map<int, Greeting> ranks_;
  bool complete_ = false;
};

}  // namespace tandem
