#include "tandem/comm/rpc/request_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/store/connection.h"
#include "tandem/base/store/handshake.h"
#include "tandem/base/store/protocol.h"
#include "tandem/base/text.h"
#include "tandem/comm/rpc/message_transfer.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Time for which the server accepts no clients after it has run out of descriptors.
constexpr Milliseconds kAcceptPause{100};
// Maximum time for which an answer blocks the rank that answers. The server's thread
// sends the rest of the answer.
constexpr Milliseconds kPushOn{20};

// Returns the token of the handshake of one connection. It contains both ranks, so that
// the proofs cover them.
std::string connection_token(const std::string& key, int from, int to) {
  return key + "\n" + std::to_string(from) + " to " + std::to_string(to);
}

}  // namespace

Socket connect_to_server(
    const std::string& address, const std::string& key, int from, int to,
    Socket::Deadline deadline) {
  auto socket = connect_once(address, deadline);
  if (!socket) {
    throw CommError("", "no process accepts connections at " + address, to);
  }
  if (!store_protocol::send_frame(socket, std::to_string(from), deadline) ||
      store_protocol::shake_hands(socket, connection_token(key, from, to), deadline) !=
          store_protocol::Handshake::ok) {
    throw CommError("", "the process at " + address + " did not prove its rank", to);
  }
  return socket;
}

// State of the server. The thread uses the connections; `mutex_` guards the state that
// other threads use.
class RequestServer::Loop {
 public:
  Loop(const std::string& key, int rank, int size)
      : key_(key),
        rank_(rank),
        size_(size),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  std::optional<RpcRequest> next(Milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(
        lock, timeout, [&] { return !requests_.empty() || lost_rank_ >= 0; });
    if (!requests_.empty()) {
      auto request = std::move(requests_.front());
      requests_.pop_front();
      return request;
    }
    if (lost_rank_ >= 0) {
      throw CommError("a request of another rank", cause_, lost_rank_);
    }
    return std::nullopt;
  }

  bool is_connected(int peer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connected_.count(peer) > 0;
  }

  void stop() {
    stopping_ = true;
    wake();
  }

  void serve(int listener) {
    while (!stopping_) {
      const auto ready = wait_for_events(listener);
      serve_peers(ready);
      greet_strangers();
      if (ready[1].revents != 0) {
        accept_one(listener);
      }
    }
  }

 private:
  // A client whose handshake is not complete.
  struct Stranger {
    StoreConnection connection;
    std::optional<int> rank;
  };

  // A connection of another rank.
  struct Peer {
    Peer(Socket connected, int number) : socket(std::move(connected)), rank(number) {}

    Socket socket;
    int rank;
    MessageReceiver receiver;
    // Guards `answers`. `has_answers` is false if `answers` is empty.
    std::mutex mutex;
    std::deque<std::unique_ptr<MessageSender>> answers;
    std::atomic<bool> has_answers{false};
  };

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.fd(), &one, sizeof(one));
  }

  // Returns the events of `wake_`, the listener and the peers, and then of the
  // strangers.
  std::vector<pollfd> wait_for_events(int listener) {
    const bool accepting = Clock::now() >= accept_after_;
    auto until = accepting ? Clock::now() + Milliseconds(60'000) : accept_after_;
    std::vector<pollfd> entries = {
        {wake_.fd(), POLLIN, 0},
        {listener, static_cast<short>(accepting ? POLLIN : 0), 0}};
    for (const auto& peer : peers_) {
      const int out = peer->has_answers ? POLLOUT : 0;
      entries.push_back({peer->socket.fd(), static_cast<short>(POLLIN | out), 0});
    }
    for (const auto& stranger : strangers_) {
      const auto& connection = stranger.connection;
      entries.push_back({connection.fd(), connection.events(), 0});
      until = std::min(until, connection.trust_by);
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(until - Clock::now());
    poll(
        entries.data(), entries.size(),
        static_cast<int>(std::max<int64_t>(left.count() + 1, 0)));
    uint64_t count = 0;
    [[maybe_unused]] const auto drained = read(wake_.fd(), &count, sizeof(count));
    return entries;
  }

  void serve_peers(const std::vector<pollfd>& ready) {
    constexpr size_t kFirst = 2;
    std::vector<std::shared_ptr<Peer>> staying;
    for (size_t i = 0; i < peers_.size(); ++i) {
      const auto& peer = peers_[i];
      const auto events = ready[kFirst + i].revents;
      try {
        if ((events & POLLOUT) != 0) {
          send_answers(*peer);
        }
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
          receive(peer);
        }
        staying.push_back(peer);
      } catch (const CommError& error) {
        lose(peer->rank, error.cause());
      } catch (const std::exception& error) {
        // The memory for a message could not be allocated.
        lose(peer->rank, first_line(error));
      }
    }
    peers_ = std::move(staying);
  }

  void receive(const std::shared_ptr<Peer>& peer) {
    while (peer->receiver.receive_some(peer->socket.fd())) {
      RpcRequest request;
      request.from = peer->rank;
      request.reply = [this, peer, id = peer->receiver.id()](const RpcMessage& answer) {
        reply(*peer, id, answer);
      };
      request.message = peer->receiver.take();
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(std::move(request));
      changed_.notify_all();
    }
  }

  static void send_answers(Peer& peer) {
    const std::lock_guard<std::mutex> lock(peer.mutex);
    while (!peer.answers.empty() && peer.answers.front()->send_some(peer.socket.fd())) {
      peer.answers.pop_front();
    }
    peer.has_answers = !peer.answers.empty();
  }

  // Sends an answer without copying it if the peer reads it fast. Otherwise the
  // server's thread sends a copy of the rest.
  void reply(Peer& peer, uint64_t id, const RpcMessage& answer) {
    auto sender = std::make_unique<MessageSender>(id, answer);
    try {
      if (!peer.has_answers && send_now(*sender, peer.socket.fd())) {
        return;
      }
    } catch (const CommError&) {
      // The server's thread reports that the peer has closed the connection.
      return;
    }
    sender->copy_rest();
    {
      const std::lock_guard<std::mutex> lock(peer.mutex);
      peer.answers.push_back(std::move(sender));
      peer.has_answers = true;
    }
    wake();
  }

  static bool send_now(MessageSender& sender, int fd) {
    const auto deadline = Clock::now() + kPushOn;
    while (!sender.send_some(fd)) {
      if (Clock::now() >= deadline || !wait_until_ready(fd, POLLOUT, deadline)) {
        return false;
      }
    }
    return true;
  }

  void lose(int rank, const std::string& cause) {
    const std::lock_guard<std::mutex> lock(mutex_);
    connected_.erase(rank);
    if (lost_rank_ < 0) {
      lost_rank_ = rank;
      cause_ = cause;
    }
    changed_.notify_all();
  }

  void accept_one(int listener) {
    Socket accepted(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted) {
      const int on = 1;
      setsockopt(accepted.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      // A rank finishes its handshake quickly, so the oldest client is not a rank.
      if (strangers_.size() >= store_protocol::kMostStrangers) {
        strangers_.pop_front();
      }
      strangers_.push_back(
          {StoreConnection(std::move(accepted), store_protocol::kMostHandshakeBytes),
           {}});
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      accept_after_ = Clock::now() + kAcceptPause;
    }
  }

  void greet_strangers() {
    for (auto& stranger : strangers_) {
      auto& connection = stranger.connection;
      shake_hands(stranger);
      connection.send_out();
      const bool sent = (connection.events() & POLLOUT) == 0;
      if (connection.trusted && sent && !connection.closing) {
        add_peer(connection.take_socket(), *stranger.rank);
        connection.closing = true;
      }
    }
    strangers_.remove_if([](const Stranger& stranger) {
      const auto& connection = stranger.connection;
      return connection.closing || Clock::now() >= connection.trust_by;
    });
  }

  // A rank sends its number, then the frames of the store's handshake. It sends its
  // first request after the server's last frame.
  void shake_hands(Stranger& stranger) {
    auto& connection = stranger.connection;
    if (connection.trusted) {
      return;
    }
    connection.receive();
    std::string frame;
    while (!connection.trusted && connection.next_frame(frame)) {
      if (stranger.rank) {
        connection.shake_hands(frame, connection_token(key_, *stranger.rank, rank_));
        continue;
      }
      const auto rank = parse_number<int>(frame);
      connection.closing = !rank || *rank < 0 || *rank >= size_ || *rank == rank_;
      stranger.rank = rank;
    }
  }

  void add_peer(Socket socket, int rank) {
    peers_.push_back(std::make_shared<Peer>(std::move(socket), rank));
    const std::lock_guard<std::mutex> lock(mutex_);
    connected_.insert(rank);
  }

  const std::string key_;
  const int rank_;
  const int size_;
  Descriptor wake_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RpcRequest> requests_;
  // Ranks that are connected.
  std::set<int> connected_;
  // First rank that closed its connection, or -1, and the cause.
  int lost_rank_ = -1;
  std::string cause_;
  std::list<Stranger> strangers_;
  std::vector<std::shared_ptr<Peer>> peers_;
  Clock::time_point accept_after_{};
};

RequestServer::RequestServer(
    Socket listener, const std::string& key, int rank, int size)
    : listener_(std::move(listener)), loop_(std::make_unique<Loop>(key, rank, size)) {
  fcntl(listener_.fd(), F_SETFL, O_NONBLOCK);
  thread_ = std::thread([this] { loop_->serve(listener_.fd()); });
}

RequestServer::~RequestServer() {
  loop_->stop();
  thread_.join();
}

std::optional<RpcRequest> RequestServer::next(Milliseconds timeout) {
  return loop_->next(timeout);
}

bool RequestServer::is_connected(int peer) const {
  return loop_->is_connected(peer);
}

}  // namespace tandem
