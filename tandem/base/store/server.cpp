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
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/store/connection.h"
#include "tandem/base/store/handshake.h"
#include "tandem/base/store/protocol.h"
#include "tandem/base/store/store.h"
#include "tandem/base/wait_notice.h"

namespace tandem {

using store_protocol::Operation;
using store_protocol::Request;
using store_protocol::Status;
using Clock = std::chrono::steady_clock;

namespace {

// Time for which the server accepts no clients after it has run out of descriptors.
constexpr Milliseconds kAcceptPause{100};

int64_t to_number(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

// Adds with wraparound, since a client must not cause signed overflow in the server.
int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

// State of the server's thread. StoreServer::get() and set() also use its table.
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
      if (!put(key, value)) {
        throw CommError("store set " + key, "the store is full");
      }
    }
    wake();
  }

  void greet(const Greeting& greeting) {
    const std::lock_guard<std::mutex> lock(mutex_);
    roll_call_.add(greeting);
  }

  bool refused() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !refusal_.empty();
  }

  // Returns whether a process that greeted is still connected.
  bool has_greeted_clients() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return num_greeted_ > 0;
  }

  std::vector<StoreServer::Launcher> launchers() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<StoreServer::Launcher> all;
    for (const auto& entry : launchers_) {
      all.push_back(entry.second);
    }
    return all;
  }

  void refuse_only_launchers() {
    const std::lock_guard<std::mutex> lock(mutex_);
    refuses_only_launchers_ = true;
  }

  void name_missing_ranks(const std::string& address) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_at_ = address;
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
        connection.receive();
        handle(connection);
        connection.closing = connection.closing || is_late(connection);
      }
      answer_waiting();
      say_who_is_missing();
      for (auto& connection : connections_) {
        connection.send_out();
      }
      connections_.remove_if([&](const StoreConnection& c) {
        if (c.closing && c.greeting) {
          const std::lock_guard<std::mutex> lock(mutex_);
          roll_call_.leave(*c.greeting);
          --num_greeted_;
          if (auto* launcher = launcher_of(*c.greeting)) {
            launcher->here = false;
          }
        }
        return c.closing;
      });
    }
  }

 private:
  // Returns the launcher that sent a greeting. Returns null if a rank sent it, or if
  // another process has replaced the launcher. Called with the lock held.
  StoreServer::Launcher* launcher_of(const Greeting& greeting) {
    const auto found = greeting.role == Greeting::Role::launcher
                           ? launchers_.find(greeting.number)
                           : launchers_.end();
    const bool same = found != launchers_.end() &&
                      found->second.greeting.identity == greeting.identity;
    return same ? &found->second : nullptr;
  }

  // Called with the lock held.
  void note_sign_of_life(const StoreConnection& from) {
    auto* launcher = from.greeting ? launcher_of(*from.greeting) : nullptr;
    if (launcher != nullptr) {
      launcher->heard = Clock::now();
    }
  }

  Milliseconds longest_sleep() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool waiting = !waiting_at_.empty() && !roll_call_.complete();
    return Milliseconds(waiting ? 1'000 : 60'000);
  }

  void say_who_is_missing() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto missing = waiting_at_.empty() ? "" : roll_call_.missing_ranks();
    if (!missing.empty() && notice_.is_due(missing)) {
      log_info("[store] waiting for " + missing + " to join at " + waiting_at_);
    }
  }

  static bool is_late(const StoreConnection& connection) {
    return !connection.trusted && Clock::now() >= connection.trust_by;
  }

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.fd(), &one, sizeof(one));
  }

  void wait_for_events(int listener) {
    const bool accepting = Clock::now() >= accept_after_;
    auto until = accepting ? Clock::now() + longest_sleep() : accept_after_;
    std::vector<pollfd> entries = {
        {listener, static_cast<short>(accepting ? POLLIN : 0), 0},
        {wake_.fd(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      entries.push_back({connection.fd(), connection.events(), 0});
      if (!connection.trusted) {
        until = std::min(until, connection.trust_by);
      }
      if (connection.pending) {
        until = std::min(until, connection.deadline);
      } else if (connection.has_frame()) {
        until = Clock::now();
      }
    }
    const auto left =
        std::chrono::duration_cast<Milliseconds>(until - Clock::now()).count();
    poll(
        entries.data(), entries.size(),
        static_cast<int>(std::max<int64_t>(left + 1, 0)));
    uint64_t count = 0;
    [[maybe_unused]] const auto drained = read(wake_.fd(), &count, sizeof(count));
    size_t i = 2;
    for (auto& connection : connections_) {
      connection.closing = (entries[i++].revents & (POLLHUP | POLLERR)) != 0;
    }
    if ((entries[0].revents & POLLIN) != 0) {
      accept_one(listener);
    }
  }

  void accept_one(int listener) {
    Socket accepted(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted && is_other_user(accepted.fd())) {
      return;
    }
    if (accepted) {
      make_room_for_untrusted();
      connections_.emplace_back(
          std::move(accepted), store_protocol::kMostHandshakeBytes);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      // If there is no free descriptor or memory, the client stays in the kernel's
      // queue, and every poll() would return immediately.
      accept_after_ = Clock::now() + kAcceptPause;
    }
  }

  // Closes the oldest untrusted connection if there are too many. A client with the
  // token finishes its handshake quickly, so the oldest connection is not from such a
  // client.
  void make_room_for_untrusted() {
    const auto is_untrusted = [](const StoreConnection& c) { return !c.trusted; };
    const auto untrusted =
        std::count_if(connections_.begin(), connections_.end(), is_untrusted);
    if (static_cast<size_t>(untrusted) >= store_protocol::kMostStrangers) {
      connections_.erase(
          std::find_if(connections_.begin(), connections_.end(), is_untrusted));
    }
  }

  void handle(StoreConnection& from) {
    std::string frame;
    while (from.next_frame(frame)) {
      if (!from.trusted) {
        if (!from.shake_hands(frame, token_)) {
          warn_of_denied(from.fd());
        }
        continue;
      }
      Request request;
      if (store_protocol::decode(frame, request)) {
        answer(from, request);
      } else {
        from.reply(Status::bad_request);
      }
    }
  }

  // Warns about a client without the token. It may be a host of this run, which would
  // otherwise wait without a message. The limit prevents other addresses from filling
  // the terminal.
  void warn_of_denied(int fd) {
    constexpr size_t kMostNamed = 3;
    const auto address = peer_address(fd);
    if (!address.empty() && denied_.size() < kMostNamed &&
        denied_.insert(address).second) {
      log_warning(
          "[store] " + address +
          " was rejected, since its token differs from this run's; if it is a host of "
          "this run, give it a copy of the same file (--token-file or "
          "TANDEM_TOKEN_FILE)");
    }
  }

  void answer(StoreConnection& from, const Request& request) {
    if (request.operation == Operation::get || request.operation == Operation::wait) {
      from.pending = request;
      const auto most = int64_t{1} << 40;
      from.deadline =
          Clock::now() + Milliseconds(std::clamp<int64_t>(request.timeout_ms, 0, most));
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    note_sign_of_life(from);
    if (request.operation == Operation::greet) {
      welcome(from, request.texts);
      return;
    }
    if (const auto value = apply(request)) {
      from.reply(Status::ok, *value);
    } else {
      from.reply(Status::full);
    }
  }

  // Called with the lock held.
  void welcome(StoreConnection& from, const std::vector<std::string>& texts) {
    const auto greeting = from_texts(texts);
    if (!greeting) {
      from.reply(Status::bad_request);
      return;
    }
    // A client that connects after all ranks have joined must not end the run.
    const bool complete = roll_call_.complete();
    std::string line = refusal_;
    if (line.empty()) {
      line = roll_call_.add(*greeting);
      const bool ends_run = !complete && !(refuses_only_launchers_ &&
                                           greeting->role == Greeting::Role::launcher);
      refusal_ = ends_run ? line : "";
    }
    if (line.empty()) {
      num_greeted_ += from.greeting ? 0 : 1;
      from.greeting = greeting;
      if (greeting->role == Greeting::Role::launcher) {
        launchers_[greeting->number] = {*greeting, true, Clock::now()};
      }
    }
    from.reply(line.empty() ? Status::ok : Status::refused, line);
  }

  // Sets a key. Returns false, and changes nothing, if the table would be too large.
  // Called with the lock held.
  bool put(const std::string& key, const std::string& value) {
    const auto found = values_.find(key);
    const size_t before =
        found == values_.end() ? 0 : bytes_of(found->first, found->second);
    const size_t after = bytes_ - before + bytes_of(key, value);
    if (after > store_protocol::kMostTableBytes) {
      return false;
    }
    values_[key] = value;
    bytes_ = after;
    return true;
  }

  static size_t bytes_of(const std::string& key, const std::string& value) {
    return key.size() + value.size() + store_protocol::kEntryBytes;
  }

  bool remove(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      return false;
    }
    bytes_ -= bytes_of(found->first, found->second);
    values_.erase(found);
    return true;
  }

  std::string value_or_empty(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? "" : found->second;
  }

  // Executes an operation that never waits. Returns nullopt if the table is full.
  // Called with the lock held.
  std::optional<std::string> apply(const Request& request) {
    const auto& texts = request.texts;
    const auto put_and_return = [&](const std::string& value) {
      return put(texts[0], value) ? std::optional(value) : std::nullopt;
    };
    switch (request.operation) {
      case Operation::set:
        return put(texts[0], texts[1]) ? std::optional<std::string>("") : std::nullopt;
      case Operation::add:
        return put_and_return(std::to_string(
            sum(to_number(value_or_empty(texts[0])), to_number(texts[1]))));
      case Operation::compare_set: {
        const std::string current = value_or_empty(texts[0]);
        return current == texts[1] ? put_and_return(texts[2]) : current;
      }
      case Operation::has:
        return has_all(texts) ? "1" : "0";
      case Operation::remove:
        return remove(texts[0]) ? "1" : "0";
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
      // Clients can read existing values, such as reports, even if the run was refused.
      if (has_all(keys)) {
        const bool get = connection.pending->operation == Operation::get;
        connection.reply(Status::ok, get ? values_[keys[0]] : "");
      } else if (!refusal_.empty()) {
        connection.reply(Status::refused, refusal_);
      } else if (now >= connection.deadline) {
        connection.reply(Status::timed_out, roll_call_.missing_ranks());
      } else {
        continue;
      }
      connection.pending.reset();
    }
  }

  const std::string token_;
  Descriptor wake_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  // Size of all entries, in bytes.
  size_t bytes_ = 0;
  // Addresses of clients with a different token for which a warning was logged.
  std::set<std::string> denied_;
  RollCall roll_call_;
  // Address in the message about missing ranks, or "" if this server logs no such
  // message.
  std::string waiting_at_;
  WaitNotice notice_;
  // Launchers of other hosts, by number.
  std::map<int, StoreServer::Launcher> launchers_;
  bool refuses_only_launchers_ = false;
  // Number of connections whose client has greeted.
  int num_greeted_ = 0;
  // Reason why the run was refused, or "".
  std::string refusal_;
  std::list<StoreConnection> connections_;
  Clock::time_point accept_after_{};
};

StoreServer::StoreServer(
    const std::string& address, const std::string& token, Milliseconds timeout,
    ListenOn on, const std::optional<Greeting>& own)
    : table_(std::make_unique<Table>(token)) {
  if (own) {
    table_->greet(*own);
  }
  auto listener = listen_at(address, timeout, on);
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

void StoreServer::refuse_only_launchers() {
  table_->refuse_only_launchers();
}

void StoreServer::name_missing_ranks() {
  table_->name_missing_ranks(address_);
}

bool StoreServer::linger_if_refused() const {
  if (!table_->refused()) {
    return false;
  }
  // Ranks that have just started load LibTorch before they receive the reason. Their
  // launcher reads their reports only after that.
  const auto until = Clock::now() + Milliseconds(15'000);
  while (table_->has_greeted_clients() && Clock::now() < until) {
    std::this_thread::sleep_for(Milliseconds(20));
  }
  return true;
}

std::vector<StoreServer::Launcher> StoreServer::launchers() const {
  return table_->launchers();
}

std::optional<std::string> StoreServer::get(const std::string& key) const {
  return table_->get(key);
}

void StoreServer::set(const std::string& key, const std::string& value) {
  table_->set(key, value);
}

}  // namespace tandem
