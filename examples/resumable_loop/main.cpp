// A LibTorch loop that can be killed at any time and resumes where its last checkpoint
// was saved, also with another number of ranks.
//
//   tandem launch --nproc-per-node 2 ./resumable_loop [DIRECTORY] [EPOCHS]

#include <tandem/data/distributed_sampler.h>
#include <tandem/optim/torch_optim.h>
#include <tandem/tandem.h>
#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace data = torch::data;

// Random inputs; the targets are their sums.
struct Numbers : data::datasets::Dataset<Numbers> {
  torch::Tensor inputs = torch::randn({4096, 20});
  torch::Tensor targets = inputs.sum(1, /*keepdim=*/true);

  data::Example<> get(size_t index) override {
    return {inputs[index], targets[index]};
  }
  torch::optional<size_t> size() const override {
    return inputs.size(0);
  }
};

void train(const std::string& directory, int64_t epochs) {
  auto run = tandem::join_run();
  const int rank = run.comm->rank();
  const int world_size = run.comm->size();
  torch::manual_seed(1);
  Numbers numbers;
  torch::nn::Sequential net(
      torch::nn::Linear(20, 64), torch::nn::ReLU(), torch::nn::Dropout(0.1),
      torch::nn::Linear(64, 1));
  torch::manual_seed(100 + rank);  // Each rank has its own dropout masks.

  tandem::DistributedDataParallel ddp(*net, *run.comm);
  tandem::Adadelta optimizer(net->parameters());
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/1, /*gamma=*/0.7);

  tandem::DistributedSampler sampler({numbers.inputs.size(0), world_size, rank});
  const auto loader = data::make_data_loader(
      numbers.map(data::transforms::Stack<>()), sampler,
      data::DataLoaderOptions(48 / world_size).workers(2));

  tandem::Checkpoint checkpoint(directory, *net, optimizer, *run.comm);
  checkpoint.set_scheduler(scheduler);
  tandem::Position at;
  if (checkpoint.resume(at) && rank == 0) {
    std::printf("resumed at step %lld\n", static_cast<long long>(at.step));
  }
  while (at.epoch < epochs) {
    sampler.set_epoch(at.epoch, at.samples_in_epoch);
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(net->forward(batch.data), batch.target).backward();
      optimizer.step();
      ++at.step;
      at.samples_in_epoch += batch.data.size(0) * world_size;
      if (at.step % 10 == 0) {
        checkpoint.save(at);
      }
    }
    scheduler.step();
    ++at.epoch;
    at.samples_in_epoch = 0;
    checkpoint.save(at);
  }
  ddp.check();  // Check that all ranks trained one model.

  net->eval();
  const torch::NoGradGuard no_grad;
  const auto loss = torch::mse_loss(net->forward(numbers.inputs), numbers.targets);
  if (rank == 0) {
    tandem::save_weights(directory + "/net.safetensors", *net);
    std::printf("loss %.4f\n", loss.item<double>());
  }
  std::printf("weights %s\n", ddp.arenas().parameters_sha256().c_str());
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : "checkpoints", argc > 2 ? std::atoll(argv[2]) : 3);
    return 0;
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}
