// One rank of a group over shared memory; an argument selects its action.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/comm/join/join.h"

namespace tandem {
namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

at::Tensor numbers(int rank, int64_t count) {
  const auto index = at::arange(count, at::kDouble);
  return ((index * (0.7 + rank)).sin() * (index.remainder(17) - 8).exp())
      .to(at::kFloat);
}

// Small and large tensors, in place and through the region, and messages between
// neighbors.
void sum(Communicator& comm) {
  at::Tensor last;
  for (int i = 0; i < 30; ++i) {
    const auto values = numbers(comm.rank(), i % 3 == 0 ? 60'000 : 10 * i);
    last = i % 2 == 0 ? values.clone() : comm.make_buffer(values.numel(), at::kFloat);
    last.copy_(values);
    comm.all_reduce(last)->wait();
    const int next = (comm.rank() + 1) % comm.size();
    const int before = (comm.rank() + comm.size() - 1) % comm.size();
    const auto sent = comm.send(values, next, i);
    auto got = at::zeros({values.numel()});
    comm.recv(got, before, i)->wait();
    sent->wait();
    TANDEM_CHECK(got.equal(numbers(before, got.numel())), "another message");
  }
  say("sum " + sha256_hex(last.data_ptr(), last.nbytes()));
}

// The last rank is killed in the middle, and the other ranks print their errors.
// Without a launcher they must not end before all ranks have the error.
void lose_last(Communicator& comm, const std::string& how) {
  auto small = at::zeros({4});
  auto large = at::zeros({3'000'000});
  auto shared = comm.make_buffer(3'000'000, at::kFloat);
  comm.barrier();
  try {
    for (int i = 0;; ++i) {
      if (i == 5 && comm.rank() + 1 == comm.size()) {
        raise(SIGKILL);
      }
      if (how == "message" && comm.rank() + 1 == comm.size()) {
        comm.send(small, i % comm.rank(), 0)->wait();
      } else if (how == "message") {
        comm.recv(small, comm.size() - 1, 0)->wait();
      } else {
        comm.all_reduce(
                how == "small"   ? small
                : how == "large" ? large
                                 : shared)
            ->wait();
      }
    }
  } catch (const CommError& error) {
    say(std::string(error.what()) + ", peer " +
        std::to_string(error.peer().value_or(-1)));
  }
  _exit(0);
}

void run(const std::string& word, const std::string& how) {
  CommOptions options;
  options.backend = BackendKind::shm;
  const JoinedRun joined = join_run(options);
  if (word == "sum") {
    sum(*joined.comm);
  } else {
    lose_last(*joined.comm, how);
  }
}

}  // namespace
}  // namespace tandem

int main(int count, char** words) {
  try {
    tandem::run(count > 1 ? words[1] : "", count > 2 ? words[2] : "");
  } catch (const std::exception& error) {
    tandem::say(error.what());
    return tandem::exit_code(error);
  }
  return 0;
}
