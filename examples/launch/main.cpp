// A program that a launcher starts once per rank, like train.py of tutorial 002. It
// trains a linear layer with mean squared error and SGD, in ten steps on random
// numbers.
//
//   tandem launch --nproc-per-node 2 ./launch
//   torchrun --standalone --nproc-per-node 2 --no-python ./launch

#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>

int main() {
  try {
    auto run = tandem::join_run();
    const int rank = run.comm->rank();

    torch::nn::Linear model(10, 10);
    tandem::DistributedDataParallel ddp(*model, *run.comm);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.001));

    torch::manual_seed(rank);  // Each rank has its own data.
    for (int epoch = 0; epoch < 10; ++epoch) {
      optimizer.zero_grad();
      const auto outputs = model->forward(torch::randn({20, 10}));
      auto loss = torch::nn::functional::mse_loss(outputs, torch::randn({20, 10}));
      loss.backward();
      optimizer.step();
      std::printf("Epoch: %d, Loss: %.6f\n", epoch, loss.item<double>());
    }
    std::printf("weights %s\n", ddp.arenas().parameters_sha256().c_str());
    return 0;
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}
