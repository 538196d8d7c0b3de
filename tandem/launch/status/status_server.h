#pragma once

#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/store/socket.h"
#include "tandem/launch/status/run_status.h"

namespace tandem {

/// Returns the status of a run in the text format of Prometheus, version 0.0.4. A value
/// that is not known yet, such as the loss before the first report, is left out.
std::string metrics_text(const RunStatus& status);

/// Serves the status of a run over HTTP, in a thread: in the text format of Prometheus
/// at /metrics, and as JSON at /status. A connection has one request, GET or HEAD,
/// which must arrive within 2 s and is limited to 8 KiB. The thread blocks other
/// threads only while it copies the status.
class StatusServer {
 public:
  /// Serves at listening sockets, until the object is destroyed. Without sockets there
  /// is no thread.
  explicit StatusServer(std::vector<Socket> listeners);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// Sets the status that later requests get. Thread-safe.
  void publish(RunStatus status);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    Socket socket;
    Clock::time_point deadline;
    std::string request;
    // "" until the request is complete.
    std::string answer;
    size_t num_sent = 0;
  };

  void run();
  void accept_from(const Socket& listener);
  // Reads and writes without blocking. Returns whether the connection is still needed.
  bool serve(Connection& connection);
  bool receive(Connection& connection);
  bool send_answer(Connection& connection);
  RunStatus status() const;

  std::vector<Socket> listeners_;
  std::list<Connection> connections_;
  // Becomes readable when the thread must end.
  Socket end_;
  mutable std::mutex mutex_;
  RunStatus status_;
  std::thread thread_;
};

}  // namespace tandem
