#include "tandem/core/torch_compat.h"

#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>

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

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
namespace {
c10::AutogradState& autograd_of_thread() {
  return c10::AutogradState::get_tls_state();
}
}  // namespace

BackwardOnThisThread::BackwardOnThisThread()
    : before_(autograd_of_thread().get_multithreading_enabled()) {
  autograd_of_thread().set_multithreading_enabled(false);
}
BackwardOnThisThread::~BackwardOnThisThread() {
  autograd_of_thread().set_multithreading_enabled(before_);
}
#else
BackwardOnThisThread::BackwardOnThisThread() : before_(true) {}
BackwardOnThisThread::~BackwardOnThisThread() {
  static_cast<void>(before_);
}
#endif

}  // namespace tandem
