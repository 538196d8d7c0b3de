#include "tandem/launch/status/status_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tandem/base/signals.h"
#include "tandem/base/text.h"
#include "tandem/launch/status/run_status.h"
#include "tandem/launch/status/status_sockets.h"

namespace tandem {

namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string number_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value < 0 ? "-Inf" : "+Inf") : fmt::format("{}", value);
}

std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c == '\\' || c == '"' ? std::string{'\\', c} : std::string{c};
    }
  }
  return text;
}

// Text of metrics with their descriptions.
class MetricsText {
 public:
  // Begins a metric. Its samples must follow.
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void sample(double value, const Labels& labels = {}) {
    std::string list;
    for (const auto& [label, text] : labels) {
      list +=
          fmt::format("{}{}=\"{}\"", list.empty() ? "{" : ",", label, escaped(text));
    }
    text_ += name_ + list + (list.empty() ? " " : "} ") + number_text(value) + "\n";
  }
  // Adds a metric of the run with one sample.
  void add(const char* name, const char* type, const char* help, double value) {
    begin(name, type, help);
    sample(value);
  }

  std::string take() {
    return std::move(text_);
  }

 private:
  std::string name_;
  std::string text_;
};

void add_progress(MetricsText& text, const RunStatus& status) {
  if (const auto* rank = status.furthest()) {
    text.add(
        "tandem_step", "gauge", "Optimizer steps since the run began.",
        static_cast<double>(rank->step));
    text.add(
        "tandem_last_step_timestamp_seconds", "gauge",
        "Time at which the last step ended, in seconds since 1970.",
        status.collected_at - rank->step_seconds);
    text.add(
        "tandem_epoch", "gauge", "Number of the epoch, from 1.",
        static_cast<double>(rank->epoch));
  }
  if (const auto* rank = status.with_values()) {
    text.add("tandem_loss", "gauge", "Training loss of the last report.", rank->loss);
    text.add(
        "tandem_learning_rate", "gauge", "Learning rate of the last report.",
        rank->learning_rate);
    text.add(
        "tandem_samples_per_second", "gauge",
        "Samples per second of all ranks, in the last report.",
        rank->samples_per_second);
  }
  if (const auto* rank = status.with_checkpoint()) {
    text.add(
        "tandem_checkpoint_step", "gauge",
        "Step of the newest checkpoint that this start of the ranks saved.",
        static_cast<double>(rank->checkpoint_step));
    text.add(
        "tandem_checkpoint_timestamp_seconds", "gauge",
        "Time at which this checkpoint was saved, in seconds since 1970.",
        status.collected_at - rank->checkpoint_seconds);
  }
}

void add_ranks(MetricsText& text, const RunStatus& status) {
  const auto labels = [](const RankStatus& rank) {
    return Labels{{"rank", std::to_string(rank.rank)}, {"host", rank.host}};
  };
  text.begin(
      "tandem_rank_waiting_seconds", "gauge",
      "Time for which a rank has waited for other ranks; 0 if it does not wait.");
  for (const auto& rank : status.ranks) {
    text.sample(rank.waiting_seconds, labels(rank));
  }
  text.begin(
      "tandem_rank_suspended", "gauge", "1 if the process of a rank is suspended.");
  for (const auto& rank : status.ranks) {
    text.sample(rank.suspended ? 1 : 0, labels(rank));
  }
  text.begin(
      "tandem_rank_activity", "gauge",
      "1 for the activity of a rank, 0 for its other activities.");
  for (const auto& rank : status.ranks) {
    for (const std::string name : kActivityNames) {
      auto list = labels(rank);
      list.emplace_back("activity", name);
      text.sample(name == name_of(rank.activity) ? 1 : 0, list);
    }
  }
}

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

std::string metrics_text(const RunStatus& status) {
  MetricsText text;
  text.add("tandem_ranks", "gauge", "Number of ranks.", status.world_size);
  text.add(
      "tandem_restarts_total", "counter",
      "Number of times that the ranks were started again.", status.restarts);
  add_progress(text, status);
  add_ranks(text, status);
  return text.take();
}

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
