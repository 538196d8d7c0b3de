// Measures MPI_Allreduce of float32, in place, in the same way as `tandem bench
// allreduce` measures tandem's backends: after a barrier, the slowest rank's time of
// each operation.
//
//   mpirun -np 2 bench_mpi_allreduce BYTES... [--repeats N]
//
// Rank 0 prints {"results": [{"backend", "bytes", "ms", "p10", "p90"}]}.

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kWarmup = 5;

std::vector<double> time_all_reduce(int64_t bytes, int repeats) {
  std::vector<float> buffer(static_cast<size_t>(bytes / 4));
  std::vector<double> ms(static_cast<size_t>(repeats));
  for (int i = -kWarmup; i < repeats; ++i) {
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(
        MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_FLOAT,
        MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) {
      ms[static_cast<size_t>(i)] = 1000 * (MPI_Wtime() - start);
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, ms.data(), repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::sort(ms.begin(), ms.end());
  return ms;
}

std::string describe(int64_t bytes, const std::vector<double>& sorted) {
  const auto at = [&](double q) {
    return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
  };
  return fmt::format(
      "{{\"backend\": \"mpi_allreduce\", \"bytes\": {}, \"ms\": {:.6f}, \"p10\": "
      "{:.6f}, "
      "\"p90\": {:.6f}}}",
      bytes, at(0.5), at(0.1), at(0.9));
}

bool read_arguments(int argc, char** argv, std::vector<int64_t>& sizes, int& repeats) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--repeats" && i + 1 < argc) {
      repeats = std::atoi(argv[++i]);
      continue;
    }
    sizes.push_back(std::atoll(argv[i]));
    if (sizes.back() < 4) {
      return false;
    }
  }
  return !sizes.empty() && repeats > 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<int64_t> sizes;
  int repeats = 30;
  if (!read_arguments(argc, argv, sizes, repeats)) {
    fmt::print(
        stderr, "usage: mpirun -np 2 bench_mpi_allreduce BYTES... [--repeats N]\n");
    MPI_Finalize();
    return 2;
  }
  std::string results;
  for (const int64_t bytes : sizes) {
    results += (results.empty() ? "" : ", ") +
               describe(bytes, time_all_reduce(bytes, repeats));
  }
  if (rank == 0) {
    fmt::print("{{\"results\": [{}]}}\n", results);
  }
  MPI_Finalize();
  return 0;
}
