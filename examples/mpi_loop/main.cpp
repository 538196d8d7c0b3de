// The MPI program by_hand.cpp with tandem, which averages the gradients while backward
// runs. With an argument, sums have the order of MPI.
//
//   mpirun -np 2 ./mpi_loop
//   mpirun -np 3 ./mpi_loop mpi-order

#include <mpi.h>
#include <tandem/comm/join/join_mpi.h>
#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>

#include "mpi_order.h"

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);

  torch::manual_seed(1);
  torch::nn::Sequential net(
      torch::nn::Linear(256, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
      torch::nn::ReLU(), torch::nn::Linear(512, 10));
  auto run = tandem::join_run(MPI_COMM_WORLD);
  auto options = argc > 1 ? in_mpi_order() : tandem::DistributedDataParallelOptions();
  tandem::DistributedDataParallel ddp(*net, *run.comm, options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  torch::manual_seed(100 + rank);  // Each rank has its own data.

  const double start = MPI_Wtime();
  const int steps = 50;
  for (int step = 0; step < steps; ++step) {
    const auto inputs = torch::randn({64, 256});
    const auto targets = torch::randint(10, {64}, torch::kLong);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(inputs), targets).backward();
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
        (MPI_Wtime() - start) / steps * 1e3,
        run.comm->stats().waited_seconds / steps * 1e3);
  }
  MPI_Finalize();
  return 0;
}
