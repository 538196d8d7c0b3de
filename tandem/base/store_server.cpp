#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/store.h"
#include "tandem/base/store_protocol.h"

namespace tandem {

using store_protocol::Operation;
using store_protocol::Request;
using store_protocol::Status;
using Clock = std::chrono::steady_clock;

namespace {

struct Connection {
  explicit Connection(Socket accepted) : socket(std::move(accepted)) {}

  Socket socket;
  std::string input;
  std::string output;
  bool greeted = false;
  bool closing = false;
  // Set while a get or wait has no answer yet.
  std::optional<Request> pending;
  Clock::time_point deadline;
};

void reply(Connection& to, Status status, const std::string& value = "") {
  to.output += store_protocol::encode_length(static_cast<uint32_t>(1 + value.size()));
  to.output.push_back(static_cast<char>(status));
  to.output += value;
}

// Takes one whole frame off the input; false when there is none yet.
bool next_frame(Connection& from, std::string& frame) {
  if (from.input.size() < 4) {
    return false;
  }
  const uint32_t length = store_protocol::decode_length(from.input.data());
  if (length > store_protocol::kMaxFrameBytes) {
    from.closing = true;
    return false;
  }
  if (from.input.size() < 4 + size_t{length}) {
    return false;
  }
  frame = from.input.substr(4, length);
  from.input.erase(0, 4 + size_t{length});
  return true;
}

int64_t to_number(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

}  // namespace

// Everything the server's thread works on; the table itself is shared with
// StoreServer::get and set.
class StoreServer::Table {
 public:
  explicit Table(std::string token)
      : token_(std::move(token)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  std::optional<std::string> get(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  void set(const std::string& key, const std::string& value) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      values_[key] = value;
    }
    wake();
  }

  void stop() {
    stopping_ = true;
    wake();
  }

  void serve(int listener) {
    while (!stopping_) {
      wait_for_events(listener);
      for (auto& connection : connections_) {
        receive(connection);
        handle(connection);
      }
      answer_waiting();
      for (auto& connection : connections_) {
        send_out(connection);
      }
      connections_.remove_if([](const Connection& c) { return c.closing; });
    }
  }

 private:
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.fd(), &one, sizeof(one));
  }

  void wait_for_events(int listener) {
    std::vector<pollfd> entries = {{listener, POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
    auto until = Clock::now() + Milliseconds(60'000);
    for (const auto& connection : connections_) {
      const int events = connection.output.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({connection.socket.fd(), static_cast<short>(events), 0});
      if (connection.pending) {
        until = std::min(until, connection.deadline);
      }
    }
    const auto left =
        std::chrono::duration_cast<Milliseconds>(until - Clock::now()).count();
    poll(
        entries.data(), entries.size(),
        static_cast<int>(std::max<int64_t>(left, 0) + 1));
    uint64_t count = 0;
    [[maybe_unused]] const auto drained = read(wake_.fd(), &count, sizeof(count));
    if ((entries[0].revents & POLLIN) != 0) {
      Socket accepted(
          accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (accepted) {
        connections_.emplace_back(std::move(accepted));
      }
    }
  }

  void receive(Connection& from) {
    char buffer[1 << 16];
    for (;;) {
      const ssize_t got = recv(from.socket.fd(), buffer, sizeof(buffer), 0);
      if (got <= 0) {
        from.closing = got == 0 || (errno != EAGAIN && errno != EINTR);
        return;
      }
      from.input.append(buffer, static_cast<size_t>(got));
    }
  }

  void handle(Connection& from) {
    std::string frame;
    while (!from.closing && !from.pending && next_frame(from, frame)) {
      if (!from.greeted) {
        from.greeted = frame == store_protocol::hello(token_);
        from.closing = !from.greeted;
        if (from.greeted) {
          reply(from, Status::ok);
        }
        continue;
      }
      Request request;
      if (store_protocol::decode(frame, request)) {
        answer(from, request);
      } else {
        reply(from, Status::bad_request);
      }
    }
  }

  void answer(Connection& from, const Request& request) {
    if (request.operation == Operation::get || request.operation == Operation::wait) {
      from.pending = request;
      const auto most = int64_t{1} << 40;
      from.deadline =
          Clock::now() + Milliseconds(std::clamp<int64_t>(request.timeout_ms, 0, most));
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    reply(from, Status::ok, apply(request));
  }

  // The operations that never wait. Called with the lock held.
  std::string apply(const Request& request) {
    const auto& texts = request.texts;
    switch (request.operation) {
      case Operation::set:
        values_[texts[0]] = texts[1];
        return "";
      case Operation::add: {
        auto& value = values_[texts[0]];
        value = std::to_string(to_number(value) + to_number(texts[1]));
        return value;
      }
      case Operation::compare_set: {
        const auto found = values_.find(texts[0]);
        const std::string current = found == values_.end() ? "" : found->second;
        if (current == texts[1]) {
          values_[texts[0]] = texts[2];
          return texts[2];
        }
        return current;
      }
      case Operation::has:
        return has_all(texts) ? "1" : "0";
      case Operation::remove:
        return values_.erase(texts[0]) > 0 ? "1" : "0";
      default:
        return std::to_string(values_.size());
    }
  }

  bool has_all(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
      return values_.count(key) > 0;
    });
  }

  void answer_waiting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = Clock::now();
    for (auto& connection : connections_) {
      if (!connection.pending) {
        continue;
      }
      const auto& keys = connection.pending->texts;
      if (has_all(keys)) {
        const bool get = connection.pending->operation == Operation::get;
        reply(connection, Status::ok, get ? values_[keys[0]] : "");
      } else if (now >= connection.deadline) {
        reply(connection, Status::timed_out);
      } else {
        continue;
      }
      connection.pending.reset();
    }
  }

  void send_out(Connection& to) {
    while (!to.output.empty()) {
      const ssize_t sent =
          send(to.socket.fd(), to.output.data(), to.output.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        to.closing = to.closing || (errno != EAGAIN && errno != EINTR);
        return;
      }
      to.output.erase(0, static_cast<size_t>(sent));
    }
  }

  const std::string token_;
  Socket wake_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::list<Connection> connections_;
};

StoreServer::StoreServer(const std::string& address, const std::string& token)
    : table_(std::make_unique<Table>(token)) {
  auto listener = listen_at(address);
  address_ = listener.address;
  listener_ = std::move(listener.socket);
  fcntl(listener_.fd(), F_SETFL, O_NONBLOCK);
  if (address_.rfind("unix:", 0) == 0) {
    unix_path_ = address_.substr(5);
  }
  thread_ = std::thread([this] { table_->serve(listener_.fd()); });
}

StoreServer::~StoreServer() {
  table_->stop();
  thread_.join();
  if (!unix_path_.empty()) {
    unlink(unix_path_.c_str());
  }
}

std::optional<std::string> StoreServer::get(const std::string& key) const {
  return table_->get(key);
}

void StoreServer::set(const std::string& key, const std::string& value) {
  table_->set(key, value);
}

}  // namespace tandem
