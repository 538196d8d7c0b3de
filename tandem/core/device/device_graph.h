#pragma once

namespace tandem {

/// Work of a device that was captured once (DeviceKernels::capture()), and is put in
/// the stream again by one call: the same kernels and operators over the same
/// addresses, with the values that the host passed then. The memory that it took while
/// it was captured stays its own. Not thread-safe.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Behind what is in the calling thread's current stream; nothing waits.
  virtual void launch() = 0;
};

}  // namespace tandem
