#include "tandem/comm/rpc/tensorpipe_rpc.h"

#include <torch/csrc/distributed/rpc/request_callback.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/output.h"
#include "tandem/base/store/address_filter.h"
#include "tandem/comm/c10d_store.h"

namespace tandem {

namespace {

namespace rpc = torch::distributed::rpc;
using Milliseconds = std::chrono::milliseconds;
using MessagePtr = c10::intrusive_ptr<rpc::Message>;
using FuturePtr = c10::intrusive_ptr<rpc::JitFuture>;

constexpr Milliseconds kBetweenLooks{1'000};
// Number of threads that decode messages.
constexpr int kThreads = 2;

// Message types that LibTorch does not use itself.
constexpr auto kRequest =
    static_cast<rpc::MessageType>(0x40 | rpc::MessageTypeFlags::REQUEST_TYPE);
constexpr auto kLook =
    static_cast<rpc::MessageType>(0x41 | rpc::MessageTypeFlags::REQUEST_TYPE);
constexpr auto kAnswer =
    static_cast<rpc::MessageType>(0x40 | rpc::MessageTypeFlags::RESPONSE_TYPE);

// Converts a message. The payload consists of the sender's rank and the header.
MessagePtr to_torch(rpc::MessageType type, int from, RpcMessage message) {
  const int32_t rank = from;
  std::vector<char> payload(sizeof(rank) + message.header.size());
  std::memcpy(payload.data(), &rank, sizeof(rank));
  std::copy(
      message.header.begin(), message.header.end(), payload.begin() + sizeof(rank));
  return c10::make_intrusive<rpc::Message>(
      std::move(payload), std::move(message.tensors), type);
}

int sender_of(const rpc::Message& message) {
  int32_t rank = 0;
  TANDEM_CHECK(message.payload().size() >= sizeof(rank), "the message has no sender");
  std::memcpy(&rank, message.payload().data(), sizeof(rank));
  return rank;
}

RpcMessage from_torch(rpc::Message& message) {
  const auto& payload = message.payload();
  return {
      std::string(payload.begin() + sizeof(int32_t), payload.end()), message.tensors()};
}

// Queue of received requests. Thread-safe.
class Queue {
 public:
  void push(RpcRequest request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_one();
  }

  bool pop(RpcRequest& request, Milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return !requests_.empty(); })) {
      return false;
    }
    request = std::move(requests_.front());
    requests_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RpcRequest> requests_;
};

void complete(rpc::JitFuture& future, const MessagePtr& message) {
  future.markCompleted(c10::IValue(message), message->getStorages());
}

// Handles messages on the agent's threads. Rejects LibTorch's own message types,
// because a peer could call any operator with them.
class Callback : public rpc::RequestCallback {
 public:
  Callback(std::shared_ptr<Queue> queue, int rank)
      : queue_(std::move(queue)), rank_(rank) {}

  FuturePtr processMessage(
      rpc::Message& message, std::vector<c10::Stream>) const override {
    auto future = c10::make_intrusive<rpc::JitFuture>(at::AnyClassType::get());
    if (message.type() == kRequest) {
      queue_->push(to_request(message, future));
    } else {
      const auto answer =
          message.type() == kLook
              ? to_torch(kAnswer, rank_, {})
              : rpc::createExceptionResponse("unknown message type", message.id());
      answer->setId(message.id());
      complete(*future, answer);
    }
    return future;
  }

 private:
  RpcRequest to_request(rpc::Message& message, const FuturePtr& future) const {
    RpcRequest request;
    request.from = sender_of(message);
    request.message = from_torch(message);
    request.reply = [future, id = message.id(), rank = rank_](RpcMessage answer) {
      for (auto& tensor : answer.tensors) {
        tensor = tensor.clone();
      }
      const auto response = to_torch(kAnswer, rank, std::move(answer));
      response->setId(id);
      complete(*future, response);
    };
    return request;
  }

  std::shared_ptr<Queue> queue_;
  int rank_;
};

// Sets TP_SOCKET_IFNAME. Without it the agent guesses its address from the host's name.
void name_interface(const std::string& address) {
  for (const auto& own : interface_addresses()) {
    if (own.address == address) {
      setenv("TP_SOCKET_IFNAME", own.interface.c_str(), 0);
      return;
    }
  }
}

std::string name_of_rank(int rank) {
  return "rank" + std::to_string(rank);
}

float seconds(Milliseconds time) {
  return static_cast<float>(time.count()) / 1000;
}

class TensorPipeRpc : public Rpc {
 public:
  TensorPipeRpc(
      std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
      const TensorPipeOptions& options)
      : rank_(rank), timeout_(options.timeout), looks_(static_cast<size_t>(size)) {
    name_interface(options.address);
    const auto admission = std::make_shared<const AddressFilter>(options.admitted);
    const NoSigpipe guard;
    rpc::TensorPipeRpcBackendOptions settings(
        kThreads, {}, {}, seconds(timeout_), "env://");
    agent_ = std::make_shared<rpc::TensorPipeAgent>(
        make_c10d_store(std::move(store), name, timeout_, admission),
        name_of_rank(rank), static_cast<rpc::worker_id_t>(rank), size,
        std::move(settings), std::unordered_map<std::string, rpc::DeviceMap>{},
        std::vector<c10::Device>{}, std::make_unique<Callback>(queue_, rank));
    agent_->start();
  }

  ~TensorPipeRpc() override {
    agent_->shutdown();
  }

  RpcMessage call(int peer, RpcMessage request) override {
    const auto future = send(peer, kRequest, std::move(request));
    future->wait();
    check(*future, peer);
    return from_torch(*future->value().toCustomClass<rpc::Message>());
  }

  RpcRequest next() override {
    const Deadline deadline(timeout_);
    RpcRequest request;
    while (!queue_->pop(request, std::min(kBetweenLooks, timeout_))) {
      if (deadline.passed()) {
        throw CommError(
            "a request of another rank",
            "none within " + std::to_string(timeout_.count()) + " ms");
      }
      look_after_peers();
    }
    return request;
  }

 private:
  FuturePtr send(int peer, rpc::MessageType type, RpcMessage message) {
    try {
      const NoSigpipe guard;
      return agent_->send(
          agent_->getWorkerInfo(name_of_rank(peer)),
          to_torch(type, rank_, std::move(message)), seconds(timeout_));
    } catch (const std::exception& error) {
      fail(peer, error);
    }
  }

  void check(rpc::JitFuture& future, int peer) {
    if (future.hasError()) {
      try {
        std::rethrow_exception(future.exception_ptr());
      } catch (const std::exception& error) {
        fail(peer, error);
      }
    }
  }

  [[noreturn]] static void fail(int peer, const std::exception& error) {
    throw CommError(
        "the answer of rank " + std::to_string(peer), first_line(error), peer);
  }

  // Checks the peers. Without these checks, a rank that only waits would not detect
  // that a peer has ended.
  void look_after_peers() {
    for (size_t peer = 0; peer < looks_.size(); ++peer) {
      if (static_cast<int>(peer) == rank_) {
        continue;
      }
      auto& look = looks_[peer];
      if (look && look->completed()) {
        check(*look, static_cast<int>(peer));
        look.reset();
      }
      if (!look) {
        look = send(static_cast<int>(peer), kLook, {});
      }
    }
  }

  int rank_;
  Milliseconds timeout_;
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  // For each peer, the check that the peer has not yet answered, or null.
  std::vector<FuturePtr> looks_;
  std::shared_ptr<rpc::TensorPipeAgent> agent_;
};

}  // namespace

std::unique_ptr<Rpc> make_tensorpipe_rpc(
    std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
    const TensorPipeOptions& options) {
  try {
    return std::make_unique<TensorPipeRpc>(std::move(store), name, rank, size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("starting TensorPipe", first_line(error));
  }
}

}  // namespace tandem
