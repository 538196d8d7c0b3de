#pragma once

#include <mpi.h>
#include <tandem/tandem.h>

// Returns options with which gradients are summed as in by_hand.cpp: with one
// MPI_Allreduce per parameter. Sums of more than two ranks then have the same bits.
inline tandem::DistributedDataParallelOptions in_mpi_order() {
  tandem::DistributedDataParallelOptions options;
  options.bucket_hook = [](tandem::Communicator& comm,
                           const tandem::GradBucket& bucket) {
    for (const auto& [name, grad] : bucket.gradients) {
      const auto count = static_cast<int>(grad.numel());
      MPI_Allreduce(
          MPI_IN_PLACE, grad.data_ptr(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      grad.div_(comm.size());
    }
    return std::function<void()>();
  };
  return options;
}
