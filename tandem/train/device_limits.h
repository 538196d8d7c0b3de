#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "tandem/base/error.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"

namespace tandem {

/// Returns the reason why a run cannot use devices other than main memory, "" if it
/// can.
std::string device_obstacle(const RunConfig& config);

/// Returns the reason why a GPU of a compute capability, such as "7.5", cannot compute
/// in `precision`, and what to change; "" if it can.
std::string precision_obstacle(Precision precision, const std::string& capability);

/// Returns whether an error of LibTorch says that a device has too little memory. For
/// main memory see base/error.h.
bool is_out_of_device_memory(const c10::Error& error);

/// Returns such an error as one line: the memory requested, the memory free on the
/// device, and `advice`, what to change.
Error out_of_device_memory(
    const c10::Error& error, const Placement& placement, const std::string& advice);

/// Returns the advice to halve the batch size that `flag` sets.
std::string smaller_batches(const std::string& flag, int64_t batch_size);

/// Calls `run` and returns its result. If the device has too little memory, throws
/// out_of_device_memory().
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
