#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/launch/logs/rank_output.h"
#include "tandem/launch/logs/stream_sink.h"

namespace tandem {

/// Forwards signals to a host's rank processes, and their output to the launcher's
/// output, until all ranks have ended. After a failure or a stop signal, ranks that
/// outlive a grace period get SIGKILL. Signals and grace periods take effect on time
/// even if no process reads the launcher's output.
///
/// SIGUSR1 and SIGUSR2 would kill a program that has not installed its handlers. So
/// each rank gets them only after its process handles, blocks or ignores them.
class Supervisor {
 public:
  /// The end of one rank.
  struct Ending {
    int rank = 0;
    pid_t pid = 0;
    ExitStatus status;
    // True if the supervisor was stopping the ranks when this rank ended. If SIGKILL
    // ended the rank, true only if the supervisor had sent SIGKILL.
    bool stopped_by_us = false;
    // Suspended or frozen state of the rank when the supervisor ended the ranks because
    // of a failure. Such a rank does not take part in the run.
    Halt halt = Halt::none;
    // Text of describe_left() if the rank did not end after SIGKILL and was left; ""
    // otherwise. `status` then has code 1.
    std::string left = "";
    // Time at which the supervisor noticed the end.
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now();
  };

  /// The end of a rank's output that did not appear on the console.
  struct HiddenLines {
    // Name of the stream, such as "standard error".
    std::string stream;
    // Without newlines; empty if there are none.
    std::vector<std::string> lines;
  };

  /// Blocks the signals that run() handles; see launch_ranks(). Both arguments are
  /// times between SIGTERM and SIGKILL: `grace_seconds` after a rank failed, and
  /// `stop_grace_seconds` after a signal stopped the launcher.
  Supervisor(double grace_seconds, double stop_grace_seconds);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Adds a rank's process, and the destinations of its standard output and error.
  void add(int rank, Process process, StreamOptions output, StreamOptions errors);

  /// Forwards output and signals until every rank has ended. Returns the endings in
  /// order of time. After the first failure the other ranks get SIGTERM, and SIGKILL
  /// after the grace period. A second SIGINT ends the grace period immediately.
  ///
  /// Calls `must_end` about ten times a second to check the other hosts. `failed` is
  /// true if a rank of this host has failed. If `must_end` returns true, all ranks are
  /// ended, as after a failure. It must not block.
  std::vector<Ending> run(const std::function<bool(bool failed)>& must_end);

  /// Returns whether a rank has been halted for at least `seconds` of the time in which
  /// this launcher ran. A rank in an uninterruptible wait counts only if it makes no
  /// progress. Call it at least once a second.
  bool has_halted_rank(double seconds);

  /// Returns whether a signal that stops the run has arrived since run() or the
  /// previous call of told_to_stop(). Call it after run().
  bool told_to_stop();

  /// Writes the rest of the ranks' output. After a signal that stops the run, drops the
  /// rest if the reader reads nothing for kReaderPatience.
  void finish_output();

  /// Returns the last lines of a rank's standard error or, if there are no such lines,
  /// of its standard output. Returns at most `most` lines, and only lines that are not
  /// on the console.
  HiddenLines last_hidden_lines(int rank, size_t most) const;

  /// Returns the last error in a rank's standard error (StreamSink::last_error()).
  std::string last_error(int rank) const;

  /// Returns the signal that stopped the run; 0 for none.
  int stop_signal() const {
    return stop_signal_;
  }

 private:
  struct Stream {
    int from;
    StreamSink to;
  };
  using Clock = std::chrono::steady_clock;
  struct Child {
    int rank;
    Process process;
    Stream output;
    Stream error;
    // Signals that the process does not handle yet.
    std::set<int> held = {};
    bool ended = false;
    Halt halt = Halt::none;
    // Time of the first SIGKILL.
    std::optional<Clock::time_point> killed_at = {};
    // Seconds for which the process has been halted, and its context switches then.
    double halted_seconds = 0;
    int64_t switches = 0;
  };

  const Child& child_of(int rank) const;
  // Handles signals and writes output, after waiting for at most 100 ms. Returns
  // whether a reader accepted output.
  bool serve();
  void wait_for_events();
  void read_signals();
  void send_held_signals();
  // Appends the endings of newly ended ranks. Returns whether any rank has newly ended.
  bool take_endings(std::vector<Ending>& endings);
  void reap(
      std::vector<Ending>& endings, const std::function<bool(bool failed)>& must_end);
  void stop_others(int first_signal, double grace_seconds);
  void enforce_grace();
  static void kill(Child& child);
  // Appends the endings of ranks that outlive SIGKILL.
  void leave_ranks(std::vector<Ending>& endings);
  // Reads a rank's output. With `all`, reads even if the queue is full.
  static void forward(Stream& stream, bool all);

  double grace_seconds_;
  double stop_grace_seconds_;
  int signal_fd_;
  OutputQueue output_;
  OutputQueue errors_;
  std::vector<Child> children_;
  // Child processes that existed before this object.
  std::set<pid_t> others_;
  int stop_signal_ = 0;
  bool stopping_ = false;
  bool killed_ = false;
  Clock::time_point kill_at_;
  // Time of the last look of has_halted_rank().
  Clock::time_point looked_ = Clock::now();
};

}  // namespace tandem
