#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "tandem/base/error.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"

namespace tandem {

/// Returns the reason why a run cannot use a device other than the CPU; "" if it can.
std::string device_obstacle(const RunConfig& config);

/// Returns the reason why a GPU with compute capability `capability`, such as "7.5",
/// cannot compute in `precision`, and the setting to change. Returns "" if the GPU can
/// compute in this precision.
std::string precision_obstacle(Precision precision, const std::string& capability);

/// Returns whether an error of LibTorch reports that a device is out of memory. For
/// main memory, first_line() in base/error.h detects such errors.
bool is_out_of_device_memory(const c10::Error& error);

/// Converts a LibTorch error about device memory to an error of one line. The line has
/// the requested memory if the error contains it, the free memory of the device, and
/// `advice`, which names the setting to change.
Error out_of_device_memory(
    const c10::Error& error, const Placement& placement, const std::string& advice);

/// Returns the advice to halve the batch size that `flag` sets or, if the size is 1, to
/// choose a smaller model or the CPU.
std::string smaller_batches(const std::string& flag, int64_t batch_size);

/// Calls `run` and returns its result. If the device is out of memory, throws the error
/// that out_of_device_memory() returns.
template <typename Run>
auto within_device_memory(
    const Placement& placement, const std::string& advice, const Run& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    if (!placement.device || !is_out_of_device_memory(error)) {
      throw;
    }
    throw out_of_device_memory(error, placement, advice);
  }
}

}  // namespace tandem
