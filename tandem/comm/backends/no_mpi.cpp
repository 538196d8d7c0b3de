// The functions of mpi.cpp in a build without MPI.

#include "tandem/base/error.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/backends/mpi.h"

namespace tandem {

bool has_mpi() {
  return false;
}

std::unique_ptr<Communicator> make_mpi_communicator(std::chrono::milliseconds) {
  throw ConfigError(
      "[comm] backend mpi is not in this build; install Open MPI (libopenmpi-dev and "
      "openmpi-bin, as scripts/setup does) and build again, or use --backend gloo");
}

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::mpi>, const BackendParts&) {
  return make_mpi_communicator();
}

}  // namespace tandem
