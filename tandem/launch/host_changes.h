#pragma once

#include <map>
#include <vector>

namespace tandem {

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
