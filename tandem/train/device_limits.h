#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "tandem/base/error.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"

namespace tandem {

/// Why a run cannot be on devices that are not main memory, "" where it can.
std::string device_obstacle(const RunConfig& config);

/// Why a GPU of that compute capability, "7.5", cannot compute in `precision`, and what
/// to change; "" where it can.
std::string precision_obstacle(Precision precision, const std::string& capability);

/// Whether LibTorch means that a device has not enough memory. What main memory lacks
/// it says in other words (base/error.h).
bool is_out_of_device_memory(const c10::Error& error);

/// The same in a line of ours: what was wanted, what the device has free, and
/// `way_out`, what to change.
Error out_of_device_memory(
    const c10::Error& error, const Placement& placement, const std::string& way_out);

/// Advice to halve the value of a flag that says how large batches are.
std::string smaller_batches(const std::string& flag, int64_t batch_size);

/// What `run` returns. Throws out_of_device_memory() where a device's does not suffice.
template <typename Run>
auto within_device_memory(
    const Placement& placement, const std::string& way_out, const Run& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    if (!placement.device || !is_out_of_device_memory(error)) {
      throw;
    }
    throw out_of_device_memory(error, placement, way_out);
  }
}

}  // namespace tandem
