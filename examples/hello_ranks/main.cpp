// The smallest distributed program: every rank prints a line, then an all-reduce adds
// one number per rank.
//
//   tandem launch --nproc-per-node 3 ./hello_ranks

#include <ATen/ops/full.h>
#include <tandem/tandem.h>

#include <cstdio>

int main() {
  auto run = tandem::join_run();
  tandem::Communicator& comm = *run.comm;
  std::printf("hello from rank %d of %d\n", comm.rank(), comm.size());

  auto number = at::full({1}, comm.rank() + 1.0);
  comm.all_reduce(number)->wait();
  if (comm.rank() == 0) {
    std::printf("1 + ... + %d = %.0f\n", comm.size(), number.item<double>());
  }
  return 0;
}
