#include "tandem/comm/rpc/tcp_rpc.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/base/store/address_filter.h"
#include "tandem/base/store/handshake.h"
#include "tandem/base/text.h"
#include "tandem/comm/rpc/message_transfer.h"
#include "tandem/comm/rpc/request_server.h"

namespace tandem {

namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kBetweenLooks{1'000};

std::string new_secret() {
  const auto random = store_protocol::new_nonce();
  return sha256_hex(random.data(), random.size());
}

std::string none_within(Milliseconds time) {
  return "none within " + std::to_string(time.count()) + " ms";
}

class TcpRpc : public Rpc {
 public:
  TcpRpc(
      StoreClient& store, const std::string& name, int rank, int size,
      const TcpRpcOptions& options)
      : rank_(rank), timeout_(options.timeout), links_(static_cast<size_t>(size)) {
    const Deadline deadline(timeout_);
    const AddressFilter admission(options.admitted);
    auto listener = listen_at("tcp:" + options.address + ":0");
    admission.apply();
    const auto secret = new_secret();
    server_.emplace(std::move(listener.socket), key_of(store, secret), rank, size);
    const auto key = name + "/";
    store.set(key + std::to_string(rank), secret + " " + listener.address);
    for (int peer = 0; peer < size; ++peer) {
      const auto place =
          split(store.get(key + std::to_string(peer), deadline.left()), ' ');
      TANDEM_CHECK(place.size() == 2, "a rank has no address");
      links_[static_cast<size_t>(peer)].key = key_of(store, place[0]);
      links_[static_cast<size_t>(peer)].address = place[1];
    }
  }

  RpcMessage call(int peer, RpcMessage request) override {
    const Deadline deadline(timeout_);
    try {
      auto& link = connected(peer, deadline);
      const uint64_t id = ++last_id_;
      send(link, id, request, deadline);
      return receive(link, id, deadline);
    } catch (const CommError& error) {
      throw CommError(
          "the answer of rank " + std::to_string(peer), error.cause(), peer);
    }
  }

  RpcRequest next() override {
    const Deadline deadline(timeout_);
    for (;;) {
      if (auto request = server_->next(std::min(kBetweenLooks, deadline.left()))) {
        return std::move(*request);
      }
      if (deadline.passed()) {
        throw CommError("a request of another rank", none_within(timeout_));
      }
      look_after_peers();
    }
  }

 private:
  // Connection to another rank, for requests to that rank and their answers.
  struct Link {
    std::string address;
    std::string key;
    Socket socket;
    std::unique_ptr<MessageReceiver> receiver;
  };

  static std::string key_of(const StoreClient& store, const std::string& secret) {
    return store.token() + "\n" + secret;
  }

  static Socket::Deadline end_of(const Deadline& deadline) {
    return Deadline::Clock::now() + deadline.left();
  }

  Link& connected(int peer, const Deadline& deadline) {
    auto& link = links_.at(static_cast<size_t>(peer));
    if (!link.socket) {
      link.socket =
          connect_to_server(link.address, link.key, rank_, peer, end_of(deadline));
      link.receiver = std::make_unique<MessageReceiver>();
    }
    return link;
  }

  // Calls `move` until it returns true.
  template <typename Move>
  static void transfer(
      const Link& link, short events, const Deadline& deadline, const Move& move) {
    while (!move()) {
      if (!wait_until_ready(link.socket.fd(), events, end_of(deadline))) {
        throw CommError("", none_within(deadline.time()));
      }
    }
  }

  static void send(
      Link& link, uint64_t id, const RpcMessage& request, const Deadline& deadline) {
    MessageSender sender(id, request);
    try {
      transfer(
          link, POLLOUT, deadline, [&] { return sender.send_some(link.socket.fd()); });
    } catch (const CommError&) {
      // The connection has a part of a message.
      link.socket = Socket();
      throw;
    }
  }

  // Skips answers to earlier requests, whose callers did not wait for them.
  static RpcMessage receive(Link& link, uint64_t id, const Deadline& deadline) {
    for (;;) {
      transfer(link, POLLIN, deadline, [&] {
        return link.receiver->receive_some(link.socket.fd());
      });
      const bool expected = link.receiver->id() == id;
      auto message = link.receiver->take();
      if (expected) {
        return message;
      }
    }
  }

  // Throws CommError if a rank has ended. The server reports the end of ranks that are
  // connected to it.
  void look_after_peers() {
    for (int peer = 0; peer < static_cast<int>(links_.size()); ++peer) {
      if (peer != rank_ && !server_->is_connected(peer)) {
        look_after(peer);
      }
    }
  }

  void look_after(int peer) {
    const Deadline soon(kBetweenLooks);
    try {
      auto& link = connected(peer, soon);
      // Outside a call, the connection only has late answers until it is closed.
      if (link.receiver->receive_some(link.socket.fd())) {
        link.receiver->take();
      }
    } catch (const CommError& error) {
      // A busy rank may answer later.
      if (!soon.passed()) {
        throw CommError("a request of another rank", error.cause(), peer);
      }
    }
  }

  int rank_;
  Milliseconds timeout_;
  uint64_t last_id_ = 0;
  // Connections to all ranks. The entry of this rank is not used.
  std::vector<Link> links_;
  std::optional<RequestServer> server_;
};

}  // namespace

std::unique_ptr<Rpc> make_tcp_rpc(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const TcpRpcOptions& options) {
  return std::make_unique<TcpRpc>(*store, name, rank, size, options);
}

}  // namespace tandem
