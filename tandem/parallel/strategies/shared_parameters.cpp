#include "tandem/parallel/strategies/shared_parameters.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

void check_one_host(Communicator& comm) {
  const bool same = comm.broadcast_text(host_identity(), 0, "host") == host_identity();
  const int64_t first_elsewhere =
      reduce_count(same ? comm.size() : comm.rank(), ReduceOp::min, "host", comm);
  if (first_elsewhere < comm.size()) {
    throw ConfigError(
        "[hogwild] rank " + std::to_string(first_elsewhere) +
        " is not on rank 0's host, but ranks share memory; use one host, or "
        "--strategy averaging");
  }
}

std::string describe(const std::vector<NamedTensor>& parameters) {
  return ArenaLayout(parameters, {}, 1).describe();
}

int open_mapping(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    throw DataError(
        "[hogwild] cannot open rank 0's parameters at " + path + ": " +
        std::strerror(errno) + "; run all ranks on one host, as the same user");
  }
  return fd;
}

}  // namespace

ArenaAllocator share_parameters(
    Communicator& comm, const std::vector<NamedTensor>& parameters) {
  check_one_host(comm);
  comm.check_equal("the models", describe(parameters));
  // Each rank later copies its values into the shared arena, so the values must be
  // equal.
  for (const auto& [name, tensor] : parameters) {
    const auto values = tensor.detach().contiguous();
    comm.broadcast(values, 0, name)->wait();
    tensor.detach().copy_(values);
  }
  return [&comm](const std::string& name, int64_t index, const Segment& segment) {
    at::Tensor memory;
    std::string path;
    int made = -1;
    if (comm.rank() == 0) {
      const auto allocate =
          shared_allocator([&made](const std::string&, int64_t, int fd) { made = fd; });
      memory = allocate(name, index, segment);
      path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(made);
    }
    path = comm.broadcast_text(path, 0, "shared parameters");
    if (comm.rank() != 0) {
      memory = map_shared(open_mapping(path), segment);
    }
    comm.barrier("shared parameters");
    if (comm.rank() == 0) {
      close(made);
    }
    return memory;
  };
}

}  // namespace tandem
