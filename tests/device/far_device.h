#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "tandem/core/arena.h"
#include "tandem/core/device/device_kernels.h"

namespace tandem {

/// Devices in main memory, for tests on machines without a GPU: `xpu:0` to `xpu:3`, as
/// no LibTorch that we build with has one. To LibTorch and to the library they are
/// others than the CPU: their tensors go through an allocator, a device guard and
/// operators of their own, which compute with those of the CPU, bit for bit. Their
/// memory can be touched only while one of their operators or kernels runs: code that
/// takes a tensor's pointer for one of main memory ends there, as it would on a GPU.
///
/// A capture (DeviceKernels::capture()) runs what is captured and notes it, and then
/// puts the memory back as it was: so nothing has happened, and yet each operator's
/// results have their sizes. A launch runs what was noted, in its order, over the same
/// addresses with what is there then; scalars of operators and what kernels got by
/// value are those of the capture. Meanwhile each copy between the device and main
/// memory, and each operator whose result is not a tensor there, is an error as with
/// CUDA. What is taken of its memory while it captures is given to nobody else. A
/// thread captures for its current device: no other uses that meanwhile. What that
/// cannot show: work that lies on several streams, for nothing runs late here. But main
/// memory from which a device copies without the host waiting has to stay as it is
/// until the host has waited, by a copy back: else the next one is an error.
///
/// One operator at a time, of whichever thread. Ranks that are threads need a device
/// each: LibTorch computes the gradients of all on a device in one thread, where ranks
/// would wait for each other.
#ifndef TANDEM_ON_GPU
inline c10::Device far_device(int index) {
  return {c10::DeviceType::XPU, static_cast<c10::DeviceIndex>(index)};
}
constexpr bool kCountsCopies = true;
#else
// The program test_gpu: the first GPU instead, whoever asks (tests/gpu).
inline c10::Device far_device(int) {
  return {c10::DeviceType::CUDA, 0};
}
constexpr bool kCountsCopies = false;
#endif
inline const c10::Device kFar = far_device(0);
constexpr int kFarDevices = 4;

/// The kernels of kernels/cuda on it, run by the emulator (tests/cuda/emulator).
std::shared_ptr<const DeviceKernels> far_kernels();

/// The same, for ranks that meet in a capture: `around` is called with what is
/// captured, and runs it.
using AroundCapture = std::function<void(const std::function<void()>& work)>;
std::shared_ptr<const DeviceKernels> far_kernels(const AroundCapture& around);

/// What runs `one` is part of the graph that the thread's device captures.
void note_in_far_capture(std::function<void()> one);

/// Runs what touches the devices' memory and is none of their operators or kernels.
void open_far_memory(const std::function<void()>& work);

/// A run on one of them.
inline Placement far_placement(int index = 0) {
  return {far_device(index), far_kernels()};
}

/// What the devices say that they have free; for tests to change.
inline std::atomic<int64_t> far_free_bytes{int64_t{1} << 30};

/// What each of them can hold; for tests to change. Who wants more gets the error of
/// LibTorch's allocator for CUDA.
inline std::atomic<int64_t> far_capacity_bytes{int64_t{1} << 30};

/// What a device's tensors take now, and at most since the program began or
/// forget_far_peak().
int64_t far_bytes_in_use(int index = 0);
int64_t far_peak_bytes(int index = 0);
void forget_far_peak(int index = 0);

/// How long the host waits for a device each time that it asks to; for tests.
inline std::atomic<int64_t> far_wait_ms{0};

/// How often something was copied to a device; and of these, those for which the host
/// waits on a GPU, since they are not from host_words().
int64_t copies_to_far();
int64_t waited_copies_to_far();

/// How many graphs were launched.
int64_t launches_of_far_graphs();

/// How often something was copied from the device to main memory since the program
/// began: on a GPU the host waits for each.
int64_t copies_from_far();

}  // namespace tandem
