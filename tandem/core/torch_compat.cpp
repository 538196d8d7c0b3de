#include "tandem/core/torch_compat.h"

#include <ATen/autocast_mode.h>

namespace tandem {

// Autocast's switches take a device since 2.4.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool cpu_autocast_enabled() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}
void set_cpu_autocast_enabled(bool enabled) {
  at::autocast::set_autocast_enabled(at::kCPU, enabled);
}
at::ScalarType cpu_autocast_dtype() {
  return at::autocast::get_autocast_dtype(at::kCPU);
}
void set_cpu_autocast_dtype(at::ScalarType dtype) {
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}
#else
bool cpu_autocast_enabled() {
  return at::autocast::is_cpu_enabled();
}
void set_cpu_autocast_enabled(bool enabled) {
  at::autocast::set_cpu_enabled(enabled);
}
at::ScalarType cpu_autocast_dtype() {
  return at::autocast::get_autocast_cpu_dtype();
}
void set_cpu_autocast_dtype(at::ScalarType dtype) {
  at::autocast::set_autocast_cpu_dtype(dtype);
}
#endif

}  // namespace tandem
