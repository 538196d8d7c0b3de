#include "tandem/comm/rpc/rpc.h"

#include "tandem/base/error.h"
#include "tandem/launch/status/rank_status.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

void count(CommStats& stats, const RpcMessage& sent) {
  ++stats.operations;
  for (const auto& tensor : sent.tensors) {
    stats.bytes += static_cast<int64_t>(tensor.nbytes());
  }
}

RpcMessage in_main_memory(RpcMessage message) {
  for (auto& tensor : message.tensors) {
    tensor = tensor.cpu();
  }
  return message;
}

// Returns the RpcBackend of the group's host_group(), or null if it has none.
RpcBackend* backend_of(const Communicator& comm) {
  return const_cast<Communicator&>(comm).host_group().rpc_backend();
}

// Rpc that counts messages and copies tensors from devices to main memory, for all
// backends.
class CountedRpc : public Rpc {
 public:
  CountedRpc(std::unique_ptr<Rpc> rpc, CommStats& stats)
      : rpc_(std::move(rpc)), stats_(stats) {}

  RpcMessage call(int peer, RpcMessage request) override {
    request = in_main_memory(std::move(request));
    count(stats_, request);
    const ReportedWait reported("answer", 0, "rank " + std::to_string(peer));
    const auto start = Clock::now();
    auto answer = rpc_->call(peer, std::move(request));
    add_wait(start);
    return answer;
  }

  RpcRequest next() override {
    const ReportedWait reported("request of another rank");
    const auto start = Clock::now();
    auto request = rpc_->next();
    add_wait(start);
    request.reply = [this, reply = std::move(request.reply)](RpcMessage answer) {
      answer = in_main_memory(std::move(answer));
      count(stats_, answer);
      reply(std::move(answer));
    };
    return request;
  }

 private:
  void add_wait(Clock::time_point start) {
    stats_.waited_seconds +=
        std::chrono::duration<double>(Clock::now() - start).count();
  }

  std::unique_ptr<Rpc> rpc_;
  CommStats& stats_;
};

}  // namespace

bool has_rpc(const Communicator& comm) {
  return backend_of(comm) != nullptr;
}

std::unique_ptr<Rpc> make_rpc(Communicator& comm) {
  auto* backend = backend_of(comm);
  if (backend == nullptr) {
    throw ConfigError(
        "[comm] ranks over " + comm.backend() +
        " cannot call each other; use --backend shm, --backend gloo or --rank-type "
        "thread");
  }
  return std::make_unique<CountedRpc>(backend->make_rpc(), backend->rpc_stats);
}

CommStats all_stats(const Communicator& comm) {
  CommStats stats = comm.stats();
  if (const auto* backend = backend_of(comm)) {
    stats += backend->rpc_stats;
  }
  return stats;
}

}  // namespace tandem
