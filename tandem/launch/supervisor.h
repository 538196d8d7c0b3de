#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/launch/rank_output.h"

namespace tandem {

/// Watches a host's rank processes until all have ended. Whoever reads our output, or
/// does not, signals and grace are served.
class Supervisor {
 public:
  /// How one rank ended. `stopped_by_us`: it got our SIGTERM or SIGKILL first.
  struct Ending {
    int rank = 0;
    pid_t pid = 0;
    ExitStatus status;
    bool stopped_by_us = false;
    // By SIGSTOP, when the first rank failed: it took part no more.
    bool was_stopped = false;
  };

  /// Blocks the signals that it waits for; see launch_ranks().
  Supervisor(double grace_seconds, double stop_grace_seconds);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Takes over a rank's process. Lines from its pipes get `prefix`; those of
  /// standard output only with `prefix_output`.
  void add(
      int rank, Process process, const std::string& prefix, bool prefix_output = true);

  /// Asked some ten times a second, with whether a rank here has failed; true ends all
  /// ranks, as such a failure does. It must not wait.
  void ask(std::function<bool(bool failed)> others) {
    ask_ = std::move(others);
  }

  /// Forwards output and signals until every rank has ended. Returns how, in that
  /// order. After the first failure the others get SIGTERM, and SIGKILL when the grace
  /// time is over. A second SIGINT ends the grace at once.
  std::vector<Ending> run();

  /// Once all have ended: whether a signal has told us to stop since the last call.
  bool told_to_stop();

  /// Writes what the ranks have printed to its end; once we were told to stop, a reader
  /// who takes nothing for half a second is not waited for (rank_output.h).
  void finish_output();

  /// The signal that told us to stop, 0 for none.
  int stop_signal() const {
    return stop_signal_;
  }

 private:
  struct Stream {
    int from;
    OutputQueue& to;
    LineCutter lines;
  };
  struct Child {
    int rank;
    Process process;
    Stream output;
    Stream error;
    bool ended = false;
    bool was_stopped = false;
  };
  using Clock = std::chrono::steady_clock;

  void serve();
  void wait_for_events();
  void read_signals();
  // Of those that have ended since; whether there were any.
  bool take_endings(std::vector<Ending>& endings);
  void reap(std::vector<Ending>& endings);
  void stop_others(int first_signal, double grace_seconds);
  void enforce_grace();
  // Reads what a rank has printed; what does not fit, too, when `all`.
  static void forward(Stream& stream, bool all);

  double grace_seconds_;
  double stop_grace_seconds_;
  int signal_fd_;
  OutputQueue output_;
  OutputQueue errors_;
  // Whether a reader took something in the last round.
  bool read_from_us_ = false;
  std::vector<Child> children_;
  // Processes that somebody else in this program started before.
  std::set<pid_t> others_;
  std::function<bool(bool failed)> ask_ = [](bool) { return false; };
  int stop_signal_ = 0;
  bool stopping_ = false;
  bool killed_ = false;
  Clock::time_point kill_at_;
};

}  // namespace tandem
