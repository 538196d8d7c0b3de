#pragma once

/// The differences between LibTorch versions, 1.13 to the newest: the only
/// place with version #ifs.

#include <ATen/autocast_mode.h>
#include <torch/version.h>

// c10d::Store::clone() is new in 2.7, and pure virtual.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
#define TANDEM_STORE_CLONE_OVERRIDE override
#else
#define TANDEM_STORE_CLONE_OVERRIDE
#endif

namespace tandem {

// Autocast's switches take a device since 2.4.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
inline bool cpu_autocast_enabled() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}
inline void set_cpu_autocast_enabled(bool enabled) {
  at::autocast::set_autocast_enabled(at::kCPU, enabled);
}
inline at::ScalarType cpu_autocast_dtype() {
  return at::autocast::get_autocast_dtype(at::kCPU);
}
inline void set_cpu_autocast_dtype(at::ScalarType dtype) {
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}
#else
inline bool cpu_autocast_enabled() {
  return at::autocast::is_cpu_enabled();
}
inline void set_cpu_autocast_enabled(bool enabled) {
  at::autocast::set_cpu_enabled(enabled);
}
inline at::ScalarType cpu_autocast_dtype() {
  return at::autocast::get_autocast_cpu_dtype();
}
inline void set_cpu_autocast_dtype(at::ScalarType dtype) {
  at::autocast::set_autocast_cpu_dtype(dtype);
}
#endif

}  // namespace tandem

// Whether c10d's Gloo sums bfloat16; before 2.0 we do, with Gloo's own ring.
#if TORCH_VERSION_MAJOR >= 2
#define TANDEM_GLOO_SUMS_BFLOAT16 1
#else
#define TANDEM_GLOO_SUMS_BFLOAT16 0
#endif
