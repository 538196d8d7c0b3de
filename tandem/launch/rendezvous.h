#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/launch/launcher.h"
#include "tandem/launch/meeting_directory.h"

namespace tandem {

/// One start of a run's ranks.
struct Attempt {
  // 0 for the first start.
  int number = 0;
  // Number of earlier attempts that failed.
  int restarts = 0;
};

/// Returns the greeting with which a launcher joins the store of its run.
Greeting launcher_greeting(const LaunchOptions& options);

/// Connection of a host's launcher to host 0, before an attempt starts.
struct Meeting {
  // Null on host 0, and if the launcher does not wait for host 0.
  std::unique_ptr<StoreClient> client;
  Attempt attempt;
};

/// Waits on host 0 until its name resolves, and on other hosts until the launcher of
/// host 0 answers. If ranks can be restarted, other hosts wait until host 0 begins
/// attempt `next.number` or a later one, and the result has that attempt; a launcher
/// that starts while an attempt ends so joins the next one.
///
/// Throws CommError if host 0 does not answer in time, ConfigError if host 0 belongs to
/// another run, and Error if a signal stops this process.
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

  /// Throws ConfigError if the port of host 0 is in use.
  Rendezvous(const LaunchOptions& options, const std::string& token, Meeting meeting);
};

}  // namespace tandem
