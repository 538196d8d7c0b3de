#include "tandem/comm/backends/thread.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/backends/thread_group.h"
#include "tandem/comm/reduce_arrays.h"
#include "tandem/comm/rpc/thread_rpc.h"

namespace tandem {

namespace {

at::Tensor nth_of(const at::Tensor& whole, size_t index, size_t count) {
  const auto part = whole.numel() / static_cast<int64_t>(count);
  return whole.view(-1).narrow(0, static_cast<int64_t>(index) * part, part);
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    default:
      return "sum";
  }
}

std::string kind_of(const std::string& operation, const at::Tensor& tensor) {
  return operation + " of " + std::to_string(tensor.numel()) + " " +
         c10::toString(tensor.scalar_type());
}

class ThreadCommunicator : public Communicator, public RpcBackend {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, int size)
      : Communicator(rank, size, "thread"), group_(std::move(group)) {}

  RpcBackend* rpc_backend() override {
    return this;
  }

  std::unique_ptr<Rpc> make_rpc() override {
    return make_thread_rpc(group_->mailboxes(num_rpcs_++), rank());
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    const auto kind = kind_of(std::string("all_reduce ") + name_of(op), tensor);
    return meet(kind, tensor, tensor, [op](auto& parts) {
      auto total = parts[0].input;
      for (size_t i = 1; i < parts.size(); ++i) {
        reduce_into(total, parts[i].input, op);
      }
      for (size_t i = 1; i < parts.size(); ++i) {
        parts[i].output.copy_(total);
      }
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    const auto kind = kind_of("broadcast from " + std::to_string(root), tensor);
    return meet(kind, tensor, tensor, [root](auto& parts) {
      for (auto& part : parts) {
        part.output.copy_(parts[static_cast<size_t>(root)].input);
      }
    });
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    return meet(kind_of("reduce_scatter", input), input, output, [](auto& parts) {
      for (size_t slice = 0; slice < parts.size(); ++slice) {
        // The output can be part of an input.
        auto total = nth_of(parts[0].input, slice, parts.size()).clone();
        for (size_t i = 1; i < parts.size(); ++i) {
          total.add_(nth_of(parts[i].input, slice, parts.size()));
        }
        parts[slice].output.view(-1).copy_(total);
      }
    });
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    return meet(kind_of("all_gather", input), input, output, [](auto& parts) {
      for (auto& to : parts) {
        for (size_t i = 0; i < parts.size(); ++i) {
          nth_of(to.output, i, parts.size()).copy_(parts[i].input.view(-1));
        }
      }
    });
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    const auto kind = kind_of("scatter from " + std::to_string(root), output);
    return meet(kind, input, output, [root](auto& parts) {
      const auto& whole = parts[static_cast<size_t>(root)].input;
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i].output.view(-1).copy_(nth_of(whole, i, parts.size()));
      }
    });
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    const auto kind = kind_of("gather to " + std::to_string(root), input);
    return meet(kind, input, output, [root](auto& parts) {
      const auto& whole = parts[static_cast<size_t>(root)].output;
      for (size_t i = 0; i < parts.size(); ++i) {
        nth_of(whole, i, parts.size()).copy_(parts[i].input.view(-1));
      }
    });
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    return group_->send(rank(), peer, tag, tensor);
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    return group_->recv(peer, rank(), tag, tensor);
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    const Part part = find_part(color);
    if (part.size() == 1) {
      return make_single_communicator();
    }
    return std::make_unique<ThreadCommunicator>(
        group_->child(sequence_, color, part.size()), part.rank, part.size());
  }

  int failed_peer() const override {
    return group_->failed_rank();
  }

 private:
  [[nodiscard]] WorkPtr meet(
      const std::string& kind, const at::Tensor& input, const at::Tensor& output,
      const ThreadGroup::Combine& combine) {
    return group_->arrive(rank(), sequence_++, {kind, input, output}, combine);
  }

  std::shared_ptr<ThreadGroup> group_;
  int64_t sequence_ = 0;
  int64_t num_rpcs_ = 0;
};

std::vector<std::unique_ptr<Communicator>> communicators_of(
    const std::shared_ptr<ThreadGroup>& group, int size) {
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(std::make_unique<ThreadCommunicator>(group, rank, size));
  }
  return all;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int size, std::chrono::milliseconds timeout) {
  return communicators_of(std::make_shared<ThreadGroup>(size, timeout), size);
}

void run_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout) {
  const auto group = std::make_shared<ThreadGroup>(size, timeout);
  auto communicators = communicators_of(group, size);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  const auto fail = [&](int rank) {
    std::unique_lock<std::mutex> lock(mutex);
    first_error = first_error ? first_error : std::current_exception();
    lock.unlock();
    group->fail(rank);
  };
  const auto run = [&](int rank) {
    set_thread_rank(rank, size);
    try {
      body(*communicators[static_cast<size_t>(rank)]);
    } catch (...) {
      fail(rank);
    }
  };
  for (int rank = 0; rank < size; ++rank) {
    try {
      threads.emplace_back(run, rank);
    } catch (const std::system_error&) {
      // The ranks that have started wait for this rank.
      fail(rank);
      break;
    }
  }
  for (auto& thread : threads) {
    thread.join();
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::thread>, const BackendParts&) {
  throw ConfigError(
      "[comm] backend thread needs ranks that are threads; use --backend auto, or "
      "--rank-type thread");
}

}  // namespace tandem
