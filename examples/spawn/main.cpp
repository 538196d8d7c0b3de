// A program that starts its own ranks, like train_spawn.py of tutorial 002. It trains a
// linear layer with mean squared error and SGD, in ten steps on random numbers.
//
//   ./spawn [RANKS]

#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <cstdlib>

namespace {

void train(tandem::Communicator& comm) {
  torch::nn::Linear model(10, 10);
  tandem::DistributedDataParallel ddp(*model, comm);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.001));

  torch::manual_seed(comm.rank());  // Each rank has its own data.
  for (int epoch = 0; epoch < 10; ++epoch) {
    optimizer.zero_grad();
    const auto outputs = model->forward(torch::randn({20, 10}));
    auto loss = torch::nn::functional::mse_loss(outputs, torch::randn({20, 10}));
    loss.backward();
    optimizer.step();
    std::printf("Epoch: %d, Loss: %.6f\n", epoch, loss.item<double>());
  }
  std::printf("weights %s\n", ddp.arenas().parameters_sha256().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
    tandem::spawn(ranks, train);  // Returns in the parent only; ranks exit here.
    std::printf("%d ranks have ended\n", ranks);
    return 0;
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}
