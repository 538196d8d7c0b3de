#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"

namespace tandem {

/// Returns the reason why a run cannot use a device other than the CPU; "" if it can.
std::string device_obstacle(const RunConfig& config);

/// Returns the reason why a GPU with compute capability `capability`, such as "7.5",
/// cannot compute in `precision`, and the setting to change. Returns "" if the GPU can
/// compute in this precision.
std::string precision_obstacle(Precision precision, const std::string& capability);

/// Returns the advice to halve the batch size that `flag` sets or, if the size is 1, to
/// choose a smaller model or the CPU.
std::string smaller_batches(const std::string& flag, int64_t batch_size);

/// Throws an Error of one line if `error` of LibTorch, which is being handled, reports
/// that the device of `placement` is out of memory. The line has the requested memory
/// if `error` contains it, the free memory of the device, and `advice`, which names the
/// setting to change. Rethrows any other error. For main memory, first_line() in
/// base/error.h detects such errors.
[[noreturn]] void rethrow_device_error(
    const c10::Error& error, const Placement& placement, const std::string& advice);

/// Calls `run` and returns its result, or throws the error of rethrow_device_error().
template <typename Run>
auto within_device_memory(
    const Placement& placement, const std::string& advice, const Run& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    rethrow_device_error(error, placement, advice);
  }
}

}  // namespace tandem
