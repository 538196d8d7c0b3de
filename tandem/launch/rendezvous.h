#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/store/store.h"
#include "tandem/launch/launcher.h"

namespace tandem {

/// A private directory, in temporary_directory(), that contains the Unix socket of the
/// rendezvous store. The destructor removes the directory. If a launcher is killed by
/// SIGKILL, its directory remains. The same user's next launcher removes each directory
/// whose lock no launcher holds.
class MeetingDirectory {
 public:
  /// Makes the directory, and removes the directories of killed launchers. Throws
  /// DataError if the directory cannot be made.
  MeetingDirectory();
  ~MeetingDirectory();
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;

  /// Returns the store's address: "unix:DIRECTORY/launcher-store".
  std::string store_address() const;

 private:
  std::string path_;
  int lock_fd_ = -1;
};

/// One start of a run's ranks.
struct Attempt {
  // 0 for the first start.
  int number = 0;
  // Number of earlier attempts that failed.
  int restarts = 0;
  // Numbers of the hosts that may not take part.
  std::vector<int> excluded;
  // Numbers of the hosts that take part, in ascending order; empty until they are
  // known.
  std::vector<int> members;
  // True if this host, which is not host 0, lost contact with host 0. It then waits at
  // most 15 s for an answer.
  bool lost_host_0 = false;
};

/// Returns the greeting with which a launcher joins the store of its run.
Greeting launcher_greeting(const LaunchOptions& options);

/// Connection of a host's launcher to host 0, before an attempt starts.
struct Meeting {
  // Null on host 0, and if the launcher does not wait for host 0.
  std::unique_ptr<StoreClient> client;
  Attempt attempt;
  // Exit code of the run, if it has ended before this host could take part.
  std::optional<int> end_code = std::nullopt;
};

/// Connects the launcher of this host to host 0, if LaunchOptions::timeout_seconds or
/// restarts require waiting for host 0. On host 0, waits until its own name resolves.
/// On other hosts, waits until the launcher of host 0 answers.
///
/// If ranks can be restarted, other hosts also wait for an attempt of which this host
/// is a member. The number of the attempt is `next.number` or higher; the result
/// contains the attempt. So a launcher that starts while an attempt runs or ends joins
/// a later attempt.
///
/// Throws CommError if host 0 does not answer in time, ConfigError if host 0 belongs to
/// another run, and Error if host 0 has excluded this host or if a signal stops this
/// process.
Meeting meet_first_node(
    const LaunchOptions& options, const std::string& token, const Attempt& next);

/// The store through which the ranks of an attempt find each other. Its server is on
/// host 0. Call the constructor with the signals that stop a run blocked, because the
/// server has a thread.
struct Rendezvous {
  // The directory contains the server's socket, so it must outlive the server.
  std::unique_ptr<MeetingDirectory> directory;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<StoreClient> client;
  std::string address;
  Attempt attempt;
  // Maximum number of hosts.
  int nnodes = 1;

  /// If the hosts may change, waits on host 0 until at least LaunchOptions::min_nnodes
  /// hosts have joined, and a few seconds longer for other hosts. Throws ConfigError if
  /// the port of host 0 is in use, CommError if too few hosts join in time, and Error
  /// if a signal stops this process.
  Rendezvous(const LaunchOptions& options, const std::string& token, Meeting meeting);

  /// On host 0, publishes LaunchOptions::identity when it is known, and logs the hosts
  /// that are refused because they differ. Call it often.
  void compare_hosts(const LaunchOptions& options) const;

  /// On host 0, returns the hosts that have joined since the attempt began. They take
  /// part in the next attempt.
  std::vector<int> newcomers() const;

  /// On host 0, ends the launchers of the newcomers, because no attempt follows. Waits
  /// for them, at most two seconds. `code` is the exit code of the run.
  void end_run(int code) const;

  /// Like end_run(), but for hosts that wait for the next attempt, after a signal
  /// stopped the run: waits two seconds, in which their launchers connect again.
  void cancel_next_attempt() const;

 private:
  // Waits on host 0 for the hosts of this attempt, and publishes their numbers.
  void choose_members(const LaunchOptions& options);
};

}  // namespace tandem
