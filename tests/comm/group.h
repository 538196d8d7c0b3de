#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/backends/gloo.h"
#include "tandem/comm/backends/hierarchical.h"
#include "tandem/comm/backends/thread.h"
#include "tests/comm/joining_ranks.h"
#include "tests/comm/mpi_ranks.h"

namespace tandem {

/// Runs `body` on `size` ranks with the backend gloo. The ranks are threads that
/// communicate over TCP.
inline void run_gloo_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000)) {
  GlooOptions options;
  options.timeout = timeout;
  run_joining_ranks(size, body, [&](auto store, int rank) {
    return make_gloo_communicator(store, "test", rank, size, options);
  });
}

/// Runs `body` on `size` ranks with the backend shm+gloo. The ranks are threads, and
/// every two of them count as one host.
inline void run_hierarchical_ranks(
    int size, const std::function<void(Communicator&)>& body) {
  GlooOptions gloo;
  ShmOptions shm;
  gloo.timeout = shm.timeout = std::chrono::milliseconds(20'000);
  run_joining_ranks(size, body, [&](auto store, int rank) {
    auto comm = make_hierarchical_communicator(
        make_gloo_communicator(store, "test", rank, size, gloo), store, "test",
        "host " + std::to_string(rank / 2), shm);
    TANDEM_CHECK(size == 1 || comm->backend() == "shm+gloo", comm->backend());
    return comm;
  });
}

/// Returns the backends of this build, for table-driven tests.
inline std::vector<const char*> all_backends() {
  return has_mpi()
             ? std::vector<const char*>{"thread", "shm", "gloo", "hierarchical", "mpi"}
             : std::vector<const char*>{"thread", "shm", "gloo", "hierarchical"};
}

/// Runs `body` on `size` ranks with the backend "thread", "shm", "gloo", "hierarchical"
/// or "mpi".
inline void run_backend(
    const std::string& backend, int size,
    const std::function<void(Communicator&)>& body) {
  if (backend == "gloo") {
    run_gloo_ranks(size, body);
  } else if (backend == "shm") {
    run_shm_ranks(size, body);
  } else if (backend == "hierarchical") {
    run_hierarchical_ranks(size, body);
  } else if (backend == "mpi" && !is_mpi_rank()) {
    rerun_under_mpirun();
  } else if (backend == "mpi") {
    run_mpi_ranks(size, body);
  } else {
    run_ranks(size, body, std::chrono::milliseconds(20'000));
  }
}

/// Runs `body` on each rank and returns the results in rank order. With "mpi", returns
/// only the result of the rank in this process, or nothing if the process is not one of
/// the ranks.
template <typename Body>
auto on_each_rank(const std::string& backend, int size, const Body& body) {
  using Result = decltype(body(std::declval<Communicator&>()));
  if (backend == "mpi") {
    std::vector<Result> own;
    run_backend(backend, size, [&](Communicator& comm) { own.push_back(body(comm)); });
    return own;
  }
  // If Result is bool, std::optional is necessary. Elements of a std::vector<bool>
  // share a word, to which thread ranks must not write at the same time.
  std::vector<std::optional<Result>> found(static_cast<size_t>(size));
  run_backend(backend, size, [&](Communicator& comm) {
    found[static_cast<size_t>(comm.rank())] = body(comm);
  });
  std::vector<Result> results;
  for (auto& one : found) {
    results.push_back(std::move(one.value()));
  }
  return results;
}

/// Returns numbers of very different sizes, so that the order of a summation over ranks
/// has an effect.
inline at::Tensor wild_numbers(
    int rank, int64_t count, at::ScalarType dtype = at::kFloat) {
  const auto index = at::arange(count, at::kDouble);
  return ((index * (0.7 + rank)).sin() * (index.remainder(17) - 8).exp()).to(dtype);
}

/// Returns whether two tensors have equal bits. So 0 and -0 differ, and NaNs with the
/// same bits are equal.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

}  // namespace tandem
