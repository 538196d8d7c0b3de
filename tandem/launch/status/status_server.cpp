#include "tandem/launch/status/status_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "tandem/base/signals.h"
#include "tandem/base/text.h"
#include "tandem/launch/status/metrics_text.h"
#include "tandem/launch/status/status_json.h"
#include "tandem/launch/status/status_sockets.h"

namespace tandem {

namespace {

// Time for a request to arrive, and for an answer to be read.
constexpr auto kPatience = std::chrono::seconds(2);
constexpr size_t kMostRequestBytes = 8 << 10;
// Further clients wait until a connection ends.
constexpr size_t kMostConnections = 8;

std::string http_answer(
    const std::string& status, const std::string& type, const std::string& body,
    bool with_body, const std::string& headers = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: "
      "close\r\n\r\n{}",
      status, type, body.size(), headers, with_body ? body : "");
}

std::string refusal(
    const std::string& status, const std::string& reason, bool with_body = true,
    const std::string& headers = "") {
  return http_answer(
      status, "text/plain; charset=utf-8", reason + "\n", with_body, headers);
}

// Returns the answer to the first line of a request. The headers have no effect.
std::string answer_to(const std::string& line, const RunStatus& status) {
  const auto words = split(line, ' ');
  if (words.size() != 3 || words[1].rfind('/', 0) != 0 ||
      words[2].rfind("HTTP/1.", 0) != 0) {
    return refusal("400 Bad Request", "expected: GET PATH HTTP/1.1");
  }
  const std::string& method = words[0];
  const std::string path = words[1].substr(0, words[1].find('?'));
  const bool with_body = method != "HEAD";
  if (method != "GET" && method != "HEAD") {
    return refusal(
        "405 Method Not Allowed", "expected GET or HEAD", true, "Allow: GET, HEAD\r\n");
  }
  if (path == "/metrics") {
    return http_answer(
        "200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics_text(status),
        with_body);
  }
  if (path == "/status") {
    return http_answer("200 OK", "application/json", to_json(status) + "\n", with_body);
  }
  return refusal("404 Not Found", "expected /metrics or /status", with_body);
}

}  // namespace

StatusServer::StatusServer(std::vector<Socket> listeners)
    : listeners_(std::move(listeners)), end_(eventfd(0, EFD_CLOEXEC)) {
  for (const auto& listener : listeners_) {
    // Without O_NONBLOCK, accept() would block if the client has already closed its
    // connection.
    fcntl(listener.fd(), F_SETFL, O_NONBLOCK);
  }
  if (!listeners_.empty()) {
    // The launcher's main thread handles signals.
    const BlockedSignals inherited;
    thread_ = std::thread([this] { run(); });
  }
}

StatusServer::~StatusServer() {
  if (thread_.joinable()) {
    eventfd_write(end_.fd(), 1);
    thread_.join();
  }
}

void StatusServer::publish(RunStatus status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_ = std::move(status);
}

RunStatus StatusServer::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

void StatusServer::run() {
  for (;;) {
    std::vector<pollfd> entries = {{end_.fd(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      const bool sends = connection.num_sent < connection.answer.size();
      entries.push_back(
          {connection.socket.fd(), static_cast<short>(sends ? POLLOUT : POLLIN), 0});
    }
    if (connections_.size() < kMostConnections) {
      for (const auto& listener : listeners_) {
        entries.push_back({listener.fd(), POLLIN, 0});
      }
    }
    // Interval of poll() while there are connections, so that their deadlines are
    // checked.
    constexpr int kStepMs = 100;
    poll(entries.data(), entries.size(), connections_.empty() ? -1 : kStepMs);
    if (entries[0].revents != 0) {
      return;
    }
    connections_.remove_if([&](Connection& connection) { return !serve(connection); });
    for (const auto& listener : listeners_) {
      accept_from(listener);
    }
  }
}

void StatusServer::accept_from(const Socket& listener) {
  if (connections_.size() >= kMostConnections) {
    return;
  }
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && is_trusted(socket.fd())) {
    connections_.push_back({std::move(socket), Clock::now() + kPatience, "", "", 0});
  } else if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    // The client stays in the queue, so poll() would return immediately.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

bool StatusServer::serve(Connection& connection) {
  return Clock::now() < connection.deadline && receive(connection) &&
         send_answer(connection);
}

bool StatusServer::receive(Connection& connection) {
  char buffer[4096];
  const ssize_t got = recv(connection.socket.fd(), buffer, sizeof(buffer), 0);
  if (got < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  if (got == 0) {
    // The client has closed its direction, but can still read the answer.
    return connection.num_sent < connection.answer.size();
  }
  if (!connection.answer.empty()) {
    return true;  // Bytes after the request are discarded.
  }
  auto& request = connection.request;
  request.append(buffer, static_cast<size_t>(got));
  if (request.size() > kMostRequestBytes) {
    connection.answer = refusal("400 Bad Request", "the request is too long");
  } else if (request.find("\r\n\r\n") != std::string::npos) {
    connection.answer = answer_to(request.substr(0, request.find("\r\n")), status());
  }
  if (!connection.answer.empty()) {
    connection.deadline = Clock::now() + kPatience;
  }
  return true;
}

bool StatusServer::send_answer(Connection& connection) {
  const size_t left = connection.answer.size() - connection.num_sent;
  if (left == 0) {
    return true;
  }
  const ssize_t sent = send(
      connection.socket.fd(), connection.answer.data() + connection.num_sent, left,
      MSG_NOSIGNAL);
  if (sent < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  connection.num_sent += static_cast<size_t>(sent);
  if (connection.num_sent == connection.answer.size()) {
    // The connection is closed only when the client has closed it. Otherwise the kernel
    // could discard the answer, if the client has sent more than the request.
    shutdown(connection.socket.fd(), SHUT_WR);
  }
  return true;
}

}  // namespace tandem
