// A library for --device cuda whose GPUs are devices in main memory, for tests of the
// whole program. TANDEM_CUDA_LIBRARY selects it.

#include <cstdlib>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/cuda/cuda_library.h"
#include "tests/device/far_device.h"

namespace {

using namespace tandem;

// Tests set the devices' properties with variables.
void read_variable(const char* name, std::atomic<int64_t>& value) {
  if (const char* text = std::getenv(name)) {
    value = std::atoll(text);
  }
}

CudaFacts find_devices() {
  if (const char* reason = std::getenv("FAR_WHY_NONE")) {
    return {{}, reason};
  }
  CudaFacts facts;
  facts.devices.resize(kFarDevices, {"far device", "9.0", 1});
  return facts;
}

at::Device use_device(int index) {
  read_variable("FAR_CAPACITY_BYTES", far_capacity_bytes);
  read_variable("FAR_WAIT_MS", far_wait_ms);
  return far_device(index);
}

// All ranks report the same device, so they communicate through main memory.
std::string bus_id(int) {
  return "shared";
}

c10::intrusive_ptr<c10d::TANDEM_C10D_GROUP> make_nccl(
    c10::intrusive_ptr<c10d::Store>, int, int, std::chrono::milliseconds) {
  throw std::runtime_error("far devices have no NCCL");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const CudaLibrary* tandem_cuda() {
  static const CudaLibrary library = {
      &find_devices,   [] { return CudaVersions{"13.0", "13.0", "", ""}; },
      &use_device,     [](int) { return far_free_bytes.load(); },
      &far_peak_bytes, &bus_id,
      &make_nccl};
  return &library;
}
