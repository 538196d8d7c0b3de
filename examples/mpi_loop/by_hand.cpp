// A LibTorch loop that averages its gradients with one MPI_Allreduce per parameter.
// main.cpp is the same program with tandem.
//
//   mpirun -np 2 ./mpi_loop_by_hand

#include <mpi.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);

  torch::manual_seed(1);
  torch::nn::Sequential net(
      torch::nn::Linear(256, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
      torch::nn::ReLU(), torch::nn::Linear(512, 10));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  torch::manual_seed(100 + rank);  // Each rank has its own data.

  double comm_seconds = 0;
  const double start = MPI_Wtime();
  const int steps = 50;
  for (int step = 0; step < steps; ++step) {
    const auto inputs = torch::randn({64, 256});
    const auto targets = torch::randint(10, {64}, torch::kLong);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(inputs), targets).backward();
    const double before = MPI_Wtime();
    for (const auto& parameter : net->parameters()) {
      auto grad = parameter.grad();
      const auto count = static_cast<int>(grad.numel());
      MPI_Allreduce(
          MPI_IN_PLACE, grad.data_ptr(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      grad.div_(world_size);
    }
    comm_seconds += MPI_Wtime() - before;
    optimizer.step();
  }

  if (rank == 0) {
    const auto weights = torch::nn::utils::parameters_to_vector(net->parameters());
    const auto bits = weights.detach().view(torch::kInt).to(torch::kLong);
    const auto hash = (bits * torch::arange(1, bits.numel() + 1)).sum();
    std::printf("norm %.6f\n", weights.norm().item<double>());
    std::printf(
        "weights %016llx\n", static_cast<unsigned long long>(hash.item<int64_t>()));
    std::printf(
        "%.2f ms per step, of which %.2f ms wait for communication\n",
        (MPI_Wtime() - start) / steps * 1e3, comm_seconds / steps * 1e3);
  }
  MPI_Finalize();
  return 0;
}
