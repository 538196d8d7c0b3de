#include "tandem/kernels/cuda/probe.h"

#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

namespace {

// One like the others: all are compiled for the same GPUs.
__global__ void probe() {}

}  // namespace

std::string why_no_code() {
  try {
    code_architecture("probe", &probe);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tandem::cuda
