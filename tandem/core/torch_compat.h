#pragma once

/// The differences between LibTorch versions, 1.13 to the newest: with its source the
/// only place with version #ifs.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/version.h>

// c10d::Store::clone() is new in 2.7, and pure virtual.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
#define TANDEM_STORE_CLONE_OVERRIDE override
#else
#define TANDEM_STORE_CLONE_OVERRIDE
#endif

// The base class of c10d's groups of one backend.
#if TORCH_VERSION_MAJOR >= 2
#define TANDEM_C10D_GROUP Backend
#else
#define TANDEM_C10D_GROUP ProcessGroup
#endif

// Allocators may change when they allocate, and copy what they have, since 2.3.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define TANDEM_ALLOCATE_CONST
#define TANDEM_ALLOCATORS_COPY 1
#else
#define TANDEM_ALLOCATE_CONST const
#define TANDEM_ALLOCATORS_COPY 0
#endif

namespace tandem {

// Autocast's switches of this thread, for operators on a device.
bool autocast_enabled(at::DeviceType device);
void set_autocast_enabled(at::DeviceType device, bool enabled);
at::ScalarType autocast_dtype(at::DeviceType device);
void set_autocast_dtype(at::DeviceType device, at::ScalarType dtype);

/// While it lives, this thread computes gradients itself, also of what is on a device:
/// else LibTorch has one thread for each device, in which ranks that are threads would
/// wait for each other. Before 2.1 it does nothing.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread();
  ~BackwardOnThisThread();
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  bool before_;
};

}  // namespace tandem

// Whether c10d's Gloo sums bfloat16; before 2.0 we do, with Gloo's own ring.
#if TORCH_VERSION_MAJOR >= 2
#define TANDEM_GLOO_SUMS_BFLOAT16 1
#else
#define TANDEM_GLOO_SUMS_BFLOAT16 0
#endif
