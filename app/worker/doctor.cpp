#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "app/command.h"
#include "app/worker/devices.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/backends/mpi.h"
#include "tandem/config/options/comm_options.h"
#include "tandem/launch/mpirun.h"

namespace tandem::app {

namespace {

// Returns the reason why ranks cannot share memory here, "" if they can.
std::string shared_memory_obstacle() {
  const int fd = memfd_create("tandem-doctor", MFD_CLOEXEC);
  if (fd < 0) {
    return std::string("memfd_create: ") + std::strerror(errno);
  }
  close(fd);
  return "";
}

std::string mpi_obstacle() {
  if (!has_mpi()) {
    return "this build has no MPI; apt-get install libopenmpi-dev, and build again";
  }
  return has_mpirun() ? "" : "mpirun is missing; apt-get install openmpi-bin";
}

std::string nccl_obstacle() {
  return cuda_library_path().empty()
             ? "this build computes on CPUs; build with a LibTorch for CUDA"
             : "";
}

std::string obstacle_to(BackendKind backend) {
  switch (backend) {
    case BackendKind::shm:
    case BackendKind::shm_gloo:
      return shared_memory_obstacle();
    case BackendKind::mpi:
      return mpi_obstacle();
    case BackendKind::nccl:
      return nccl_obstacle();
    default:
      return "";
  }
}

void print_row(
    const std::string& name, const std::string& obstacle, const std::string& help) {
  fmt::print(
      "{:<20} {:<3}  {}\n", name, obstacle.empty() ? "yes" : "no",
      obstacle.empty() ? help : obstacle);
}

void print_backends() {
  for (const auto& choice : choices<BackendKind>()) {
    if (choice.value != BackendKind::automatic) {
      print_row(choice.name, obstacle_to(choice.value), choice.help);
    }
  }
  print_row(
      "rpc over shm", shared_memory_obstacle(), "requests between ranks of one host");
  print_row("rpc over TCP", "", "requests between ranks of backend gloo");
}

}  // namespace

int work_doctor(const Arguments& arguments) {
  if (arguments == Arguments{"backends"}) {
    print_backends();
    return 0;
  }
  fmt::print(
      "{}", arguments == Arguments{"devices"} ? devices_json() : environment_json());
  return 0;
}

}  // namespace tandem::app
