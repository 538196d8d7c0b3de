// Prints a parameter and its gradient on each rank during one step, as tutorial 003
// does: before and after backward, after the ranks average gradients, and after the
// optimizer's step. The first step averages with a hand-written all-reduce; a step with
// DistributedDataParallel then gives the same values. LibTorch does not have Adadelta,
// the tutorial's optimizer, so this example uses SGD.
//
//   ./look_at_gradients [RANKS]

#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <cstdlib>

namespace {

namespace F = torch::nn::functional;

// The network of tutorial 003.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = F::relu(conv1(x));
    x = torch::max_pool2d(F::relu(conv2(x)), 2);
    x = torch::dropout(x, 0.25, is_training());
    x = F::relu(fc1(x.flatten(1)));
    x = fc2(torch::dropout(x, 0.5, is_training()));
    return F::log_softmax(x, 1);
  }

  torch::nn::Conv2d conv1 = torch::nn::Conv2d(1, 32, 3);
  torch::nn::Conv2d conv2 = torch::nn::Conv2d(32, 64, 3);
  torch::nn::Linear fc1 = torch::nn::Linear(9216, 128);
  torch::nn::Linear fc2 = torch::nn::Linear(128, 10);
};
TORCH_MODULE(Net);

// All ranks start with the same weights.
Net make_net() {
  torch::manual_seed(1);
  return {};
}

// Each rank has its own batch and dropout mask. The mask of a rank is the same in every
// call.
torch::Tensor loss_of(Net& net, const tandem::Batch& batch, int rank) {
  torch::manual_seed(2 + rank);
  return F::nll_loss(net->forward(batch.inputs), batch.targets);
}

void average_gradients(Net& net, tandem::Communicator& comm) {
  for (auto& param : net->parameters()) {
    comm.all_reduce(param.grad())->wait();
    param.mutable_grad() /= comm.size();
  }
}

// Rank 0 prints the values of all ranks, so that the lines are in order.
void show(const char* title, const torch::Tensor& mine, tandem::Communicator& comm) {
  const auto all = comm.stack(mine.detach().flatten());
  if (comm.rank() != 0) {
    return;
  }
  std::printf("\n%s\n", title);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto values = all[rank];
    std::printf("rank %d:", rank);
    for (int i = 0; i < 4; ++i) {
      std::printf(" %+.9f", values[i].item<double>());
    }
    std::printf(" ...  norm %.9f\n", values.norm().item<double>());
  }
  std::printf("largest difference: %g\n", (all - all[0]).abs().max().item<double>());
}

void say(const char* text, const torch::Tensor& param, tandem::Communicator& comm) {
  if (comm.rank() == 0) {
    std::printf(
        "%s: .grad is None: %s, shape", text,
        param.grad().defined() ? "False" : "True");
    const auto& shown = param.grad().defined() ? param.grad() : param;
    for (const int64_t size : shown.sizes()) {
      std::printf(" %lld", static_cast<long long>(size));
    }
    std::printf("\n");
  }
}

// Returns the first parameter after a step with average_gradients(), and its gradient
// in `gradient`.
torch::Tensor exchange_by_hand(
    const tandem::Batch& batch, tandem::Communicator& comm, torch::Tensor& gradient) {
  Net net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  const auto param = net->parameters()[0];
  say("before backward", param, comm);
  loss_of(net, batch, comm.rank()).backward();
  say("after backward", param, comm);
  show("gradients before the exchange", param.grad(), comm);
  average_gradients(net, comm);
  show("gradients after average_gradients", param.grad(), comm);
  gradient = param.grad().clone();
  show("parameters before the step", param, comm);
  optimizer.step();
  show("parameters after the step", param, comm);
  return param.detach();
}

// Returns the first parameter after a step with DistributedDataParallel, and its
// gradient in `gradient`.
torch::Tensor exchange_by_ddp(
    const tandem::Batch& batch, tandem::Communicator& comm, torch::Tensor& gradient) {
  Net net = make_net();
  tandem::DistributedDataParallel ddp(*net, comm);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  const auto param = net->parameters()[0];
  {
    const auto scope = ddp.no_sync();
    loss_of(net, batch, comm.rank()).backward();
  }
  show("DistributedDataParallel: gradients under no_sync()", param.grad(), comm);
  optimizer.zero_grad();
  loss_of(net, batch, comm.rank()).backward();
  show("DistributedDataParallel: gradients after backward", param.grad(), comm);
  gradient = param.grad().clone();
  optimizer.step();
  show("DistributedDataParallel: parameters after the step", param, comm);
  return param.detach();
}

void look(tandem::Communicator& comm) {
  const auto data = tandem::load_dataset("digits", 1024).train;
  tandem::SamplerOptions shard;
  shard.num_shards = comm.size(), shard.shard = comm.rank();
  tandem::Loader loader(data, shard, {});
  loader.seek(0);
  tandem::Batch batch;
  TANDEM_CHECK(loader.next(batch), "the loader has no batch");

  torch::Tensor by_hand;
  torch::Tensor by_ddp;
  const auto after_hand = exchange_by_hand(batch, comm, by_hand);
  const auto after_ddp = exchange_by_ddp(batch, comm, by_ddp);
  if (comm.rank() == 0) {
    std::printf(
        "\naverage_gradients and DistributedDataParallel: gradients differ by %g and "
        "parameters by %g\n",
        (by_hand - by_ddp).abs().max().item<double>(),
        (after_hand - after_ddp).abs().max().item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tandem::spawn(argc > 1 ? std::atoi(argv[1]) : 2, look);
    return 0;
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}
