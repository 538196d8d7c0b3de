#include "tandem/comm/nccl/nccl_communicator.h"

#include <exception>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/nccl/nccl_traffic.h"

namespace tandem {

namespace {

using Flight = std::shared_ptr<NcclFlight>;

NcclDataType number_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return NcclDataType::float32;
    case at::kDouble:
      return NcclDataType::float64;
    case at::kHalf:
      return NcclDataType::float16;
    case at::kBFloat16:
      return NcclDataType::bfloat16;
    case at::kLong:
      return NcclDataType::int64;
    case at::kInt:
      return NcclDataType::int32;
    case at::kChar:
      return NcclDataType::int8;
    case at::kByte:
    case at::kBool:
      return NcclDataType::uint8;
    default:
      throw ConfigError(
          std::string("[comm] backend nccl cannot reduce ") +
          c10::toString(tensor.scalar_type()) + "; convert it to float");
  }
}

NcclRedOp to_nccl(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return NcclRedOp::min;
    case ReduceOp::max:
      return NcclRedOp::max;
    default:
      return NcclRedOp::sum;
  }
}

size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(
      const NcclDevice& device, std::shared_ptr<StoreClient> store, std::string name,
      int rank, int size, const NcclOptions& options)
      : Communicator(rank, size, "nccl"),
        device_(device),
        store_(std::move(store)),
        name_(std::move(name)),
        options_(options),
        traffic_(device_, store_, name_, rank, size, options) {
    // Groups that are split from this one later have their own.
    options_.forming_timeout = {};
  }

  at::Device device() const override {
    return device_.device;
  }

  std::string capture_obstacle() const override {
    return "";
  }

  std::unique_ptr<Communicator> split(int color) override {
    const Place place = place_in_split(color);
    const auto name =
        name_ + "/split" + std::to_string(num_splits_++) + "." + std::to_string(color);
    return make_nccl_communicator(
        device_, store_, name, place.rank, place.size, options_);
  }

 protected:
  void do_launch_graph(const std::function<void()>& launch) override {
    try {
      traffic_.launch_graph(launch, [this] { return flight_of("graph", {}); });
    } catch (const std::exception& error) {
      throw CommError("a graph", first_line(error));
    }
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    auto flight = flight_of("all_reduce", {tensor});
    const auto dtype = number_type(tensor);
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      void* data = tensor.data_ptr();
      return nccl->all_reduce(
          data, data, count_of(tensor), dtype, to_nccl(op), comm, stream);
    };
    return traffic_.start(std::move(flight));
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    auto flight = flight_of("broadcast", {tensor});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      void* data = tensor.data_ptr();
      return nccl->broadcast(
          data, data, tensor.nbytes(), NcclDataType::uint8, root, comm, stream);
    };
    return traffic_.start(std::move(flight));
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    auto flight = flight_of("reduce_scatter", {output, input});
    const auto dtype = number_type(input);
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->reduce_scatter(
          input.data_ptr(), output.data_ptr(), count_of(output), dtype, NcclRedOp::sum,
          comm, stream);
    };
    return traffic_.start(std::move(flight));
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    auto flight = flight_of("all_gather", {output, input});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->all_gather(
          input.data_ptr(), output.data_ptr(), input.nbytes(), NcclDataType::uint8,
          comm, stream);
    };
    return traffic_.start(std::move(flight));
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    auto flight = flight_of("scatter", {output, input});
    flight->call = [this, input, output, root](NcclComm comm, StreamHandle stream) {
      return exchange(true, input, output, root, comm, stream);
    };
    return traffic_.start(std::move(flight));
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    auto flight = flight_of("gather", {output, input});
    flight->call = [this, input, output, root](NcclComm comm, StreamHandle stream) {
      return exchange(false, output, input, root, comm, stream);
    };
    return traffic_.start(std::move(flight));
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int) override {
    auto flight = flight_of("send", {tensor});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->send(
          tensor.data_ptr(), tensor.nbytes(), NcclDataType::uint8, 1, comm, stream);
    };
    return traffic_.start_message(rank(), peer, std::move(flight));
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int) override {
    auto flight = flight_of("recv", {tensor});
    flight->call = [=, nccl = device_.nccl](NcclComm comm, StreamHandle stream) {
      return nccl->recv(
          tensor.data_ptr(), tensor.nbytes(), NcclDataType::uint8, 0, comm, stream);
    };
    return traffic_.start_message(peer, rank(), std::move(flight));
  }

 private:
  Flight flight_of(const char* operation, const std::vector<at::Tensor>& tensors);
  NcclResult exchange(
      bool scatter, const at::Tensor& whole, const at::Tensor& part, int root,
      NcclComm comm, StreamHandle stream) const;

  NcclDevice device_;
  std::shared_ptr<StoreClient> store_;
  std::string name_;
  NcclOptions options_;
  int num_splits_ = 0;
  int64_t num_operations_ = 0;
  NcclTraffic traffic_;
};

Flight NcclCommunicator::flight_of(
    const char* operation, const std::vector<at::Tensor>& tensors) {
  ++num_operations_;
  for (const auto& tensor : tensors) {
    TANDEM_CHECK(
        !tensor.defined() || tensor.device() == device_.device,
        std::string(operation) + " over NCCL on " + device_.device.str() +
            " was given a tensor on " + tensor.device().str());
  }
  return std::make_shared<NcclFlight>(
      device_.streams, std::string(operation) + " #" + std::to_string(num_operations_),
      options_.timeout);
}

// scatter or gather, as messages of one group of calls.
NcclResult NcclCommunicator::exchange(
    bool scatter, const at::Tensor& whole, const at::Tensor& part, int root,
    NcclComm comm, StreamHandle stream) const {
  const auto& nccl = *device_.nccl;
  const size_t bytes = part.nbytes();
  NcclResult first = nccl.group_start();
  const auto move = [&](bool send, char* data, int peer) {
    const auto result =
        send ? nccl.send(data, bytes, NcclDataType::uint8, peer, comm, stream)
             : nccl.recv(data, bytes, NcclDataType::uint8, peer, comm, stream);
    first = first == NcclResult::success ? result : first;
  };
  if (rank() == root) {
    for (int other = 0; other < size(); ++other) {
      char* slice = bytes_of(whole) + static_cast<size_t>(other) * bytes;
      if (other == root && slice == bytes_of(part)) {
        continue;
      }
      move(scatter, slice, other);
      if (other == root) {
        move(!scatter, bytes_of(part), root);
      }
    }
  } else {
    move(!scatter, bytes_of(part), root);
  }
  const auto end = nccl.group_end();
  return first == NcclResult::success || first == NcclResult::in_progress ? end : first;
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(
    const NcclDevice& device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, const NcclOptions& options) {
  if (size == 1) {
    return make_single_communicator();
  }
  try {
    return std::make_unique<NcclCommunicator>(
        device, std::move(store), name, rank, size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("forming the NCCL group", first_line(error));
  }
}

}  // namespace tandem
