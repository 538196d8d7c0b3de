#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/launch/host_ending.h"

namespace tandem {

/// Maximum time between two attempts.
constexpr std::chrono::seconds kLongestDelay{60};

/// Returns the number of times that the ranks of this process's run were started again
/// after a failure; 0 for the first start. Reads the environment variables
/// TANDEM_RESTART_COUNT or TORCHELASTIC_RESTART_COUNT (torchrun).
int restart_count();

/// Returns whether the ranks of this process's run were started before, by the same
/// launchers: after a failure, or because hosts joined or left.
bool is_started_again();

/// Returns the reasons for the latest restarts of this process's run, in order. The
/// launcher of host 0 passes them to its ranks in an environment variable.
std::vector<std::string> restart_causes();

/// Returns the environment variable that passes the number of an attempt, from 0, to
/// the ranks.
std::pair<std::string, std::string> attempt_variable(int number);

/// Decides whether the ranks of a run are started again after a failure. Host 0 decides
/// for all hosts of a run.
///
/// Ranks are not started again after misuse (exit code 2), after a stop by a signal, or
/// after `most` restarts. They are also not started again if the run has failed three
/// times in succession at the same step for the same reason.
class Restarts {
 public:
  /// `most` is the maximum number of restarts.
  explicit Restarts(int most) : most_(most) {}

  /// Decides about a failed attempt, and counts the restart. `step` is the last step
  /// of the run, -1 if the attempt made no step or if the step is unknown. Extends
  /// `ending.reason` by the decision, and sets `ending.again`.
  void decide(HostEnding& ending, int64_t step);

  /// Returns the number of restarts so far.
  int count() const {
    return static_cast<int>(causes_.size());
  }

  /// Sets the number of restarts to the number that host 0 has counted.
  void set_count(int count) {
    causes_.resize(static_cast<size_t>(count));
  }

  /// Returns the time to wait before the next start. It is 0 if the last attempt made
  /// steps and failed at another step, or for another reason, than the attempt before.
  /// Otherwise it is 1 s, 2 s, 4 s and so on, at most 60 s.
  std::chrono::seconds delay() const;

  /// Returns the environment variables that pass the restarts to the ranks: their
  /// number, their maximum number, and their reasons.
  Variables variables() const;

 private:
  int most_;
  std::vector<std::string> causes_;
  // Reason, without process ids, and step of the last failure; number of successive
  // failures with this reason at this step, and of successive failures without
  // progress.
  std::string reason_;
  int64_t step_ = -1;
  int repeats_ = 0;
  int idle_failures_ = 0;
};

/// Limits the starts that one host causes. If hosts may change (`--nnodes MIN:MAX`),
/// the ranks start again when a host joins, leaves or is lost, and these starts do not
/// count as restarts. A host that joins and ends again and again would cause any number
/// of starts. So a host is excluded if it causes kMostIdleStarts starts in succession
/// and the ranks make no step with it. Only host 0 uses this class.
class HostChanges {
 public:
  static constexpr int kMostIdleStarts = 3;

  /// The end of an attempt. The numbers are numbers of hosts.
  struct Change {
    // Hosts that took part, in ascending order.
    std::vector<int> members;
    // Members that left or were lost.
    std::vector<int> gone;
    // Other hosts for which the ranks ended, so that these hosts can join.
    std::vector<int> joining;
    // True if the ranks made a step.
    bool made_step = false;
  };

  /// Counts the starts that hosts have caused. Call it once for each attempt, in order.
  /// Returns the hosts that are excluded because of this attempt.
  std::vector<int> note(const Change& attempt);

  /// Returns all excluded hosts, in ascending order.
  std::vector<int> excluded() const;

 private:
  // Numbers of successive starts without a step that each host caused.
  std::map<int, int> idle_starts_;
  // Hosts that joined at the end of the previous attempt.
  std::vector<int> joining_;
};

}  // namespace tandem
