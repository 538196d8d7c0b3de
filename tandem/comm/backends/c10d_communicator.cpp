#include "tandem/comm/backends/c10d_communicator.h"

#include <utility>
#include <vector>

namespace tandem {

namespace {

c10d::ReduceOp::RedOpType to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    default:
      return c10d::ReduceOp::SUM;
  }
}

// Process groups cannot reduce bool.
at::Tensor reducible(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

}  // namespace

C10dCommunicator::C10dCommunicator(
    std::shared_ptr<StoreClient> store, std::string name, int rank, int size,
    std::string backend)
    : Communicator(rank, size, std::move(backend)),
      store_(std::move(store)),
      name_(std::move(name)) {}

at::Tensor C10dCommunicator::flat(const at::Tensor& tensor) {
  // Gloo cannot copy every 16-bit type, so these tensors are sent as bytes.
  const auto line = tensor.view(-1);
  return line.element_size() == 2 ? line.view(at::kByte) : reducible(line);
}

WorkPtr C10dCommunicator::do_all_reduce(at::Tensor tensor, ReduceOp op) {
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  std::vector<at::Tensor> tensors{reducible(tensor)};
  return running(group().allreduce(tensors, options));
}

WorkPtr C10dCommunicator::do_broadcast(at::Tensor tensor, int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors{flat(tensor)};
  return running(group().broadcast(tensors, options));
}

WorkPtr C10dCommunicator::do_all_gather(at::Tensor output, at::Tensor input) {
  std::vector<std::vector<at::Tensor>> outputs{flat(output).chunk(size())};
  std::vector<at::Tensor> inputs{flat(input)};
  return running(group().allgather(outputs, inputs));
}

WorkPtr C10dCommunicator::do_scatter(at::Tensor output, at::Tensor input, int root) {
  c10d::ScatterOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> outputs{flat(output)};
  std::vector<std::vector<at::Tensor>> inputs;
  if (rank() == root) {
    inputs.push_back(flat(input).chunk(size()));
  }
  return running(group().scatter(outputs, inputs, options));
}

WorkPtr C10dCommunicator::do_gather(at::Tensor output, at::Tensor input, int root) {
  c10d::GatherOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> inputs{flat(input)};
  std::vector<std::vector<at::Tensor>> outputs;
  if (rank() == root) {
    outputs.push_back(flat(output).chunk(size()));
  }
  return running(group().gather(outputs, inputs, options));
}

WorkPtr C10dCommunicator::do_send(at::Tensor tensor, int peer, int tag) {
  std::vector<at::Tensor> tensors{flat(tensor)};
  return running(group_for_message(rank(), peer).send(tensors, peer, tag));
}

WorkPtr C10dCommunicator::do_recv(at::Tensor tensor, int peer, int tag) {
  std::vector<at::Tensor> tensors{flat(tensor)};
  return running(group_for_message(peer, rank()).recv(tensors, peer, tag));
}

std::unique_ptr<Communicator> C10dCommunicator::do_split(int color) {
  const Part part = find_part(color);
  const auto name =
      name_ + "/split" + std::to_string(num_splits_++) + "." + std::to_string(color);
  return make_part(name, part.rank, part.size());
}

}  // namespace tandem
