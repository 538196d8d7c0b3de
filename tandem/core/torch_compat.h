#pragma once

// Code that depends on LibTorch's version, 1.13 or later. Only this header and its
// source compare versions.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/version.h>

// Since LibTorch 2.7, c10d::Store has a pure virtual clone().
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
#define TANDEM_STORE_CLONE_OVERRIDE override
#else
#define TANDEM_STORE_CLONE_OVERRIDE
#endif

// Base class of ProcessGroupGloo and ProcessGroupNCCL.
#if TORCH_VERSION_MAJOR >= 2
#define TANDEM_C10D_GROUP Backend
#else
#define TANDEM_C10D_GROUP ProcessGroup
#endif

// The thread of a Gloo device may own the last reference to a part of the device, and
// then waits for itself, which ends the process (LibTorch 2.6). So devices exist until
// the process ends.
#define TANDEM_KEEPS_GLOO_DEVICES (TORCH_VERSION_MAJOR >= 2)

// Since LibTorch 2.3, c10::Allocator::allocate() is not const, and allocators have
// copy_data().
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define TANDEM_ALLOCATE_CONST
#define TANDEM_ALLOCATORS_COPY 1
#else
#define TANDEM_ALLOCATE_CONST const
#define TANDEM_ALLOCATORS_COPY 0
#endif

namespace tandem {

/// Functions that return or set an autocast setting of the calling thread for operators
/// on a device: whether autocast is enabled, or its dtype.
bool autocast_enabled(at::DeviceType device);
void set_autocast_enabled(at::DeviceType device, bool enabled);
at::ScalarType autocast_dtype(at::DeviceType device);
void set_autocast_dtype(at::DeviceType device, at::ScalarType dtype);

/// While the object exists, backward() runs on the calling thread, even for tensors on
/// a device.
///
/// By default, LibTorch runs backward in one thread per device, so thread ranks that
/// share a device would wait for each other. Before LibTorch 2.1, this class does
/// nothing.
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

// 1 if c10d's ProcessGroupGloo can sum bfloat16. Otherwise 0, and
// comm/backends/gloo.cpp calls Gloo's ring all-reduce directly.
#if TORCH_VERSION_MAJOR >= 2
#define TANDEM_GLOO_SUMS_BFLOAT16 1
#else
#define TANDEM_GLOO_SUMS_BFLOAT16 0
#endif
