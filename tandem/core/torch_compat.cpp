#include "tandem/core/torch_compat.h"

#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>

namespace tandem {

// Since 2.4, autocast's functions have a device as argument.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool autocast_enabled(at::DeviceType device) {
  return at::autocast::is_autocast_enabled(device);
}
void set_autocast_enabled(at::DeviceType device, bool enabled) {
  at::autocast::set_autocast_enabled(device, enabled);
}
at::ScalarType autocast_dtype(at::DeviceType device) {
  return at::autocast::get_autocast_dtype(device);
}
void set_autocast_dtype(at::DeviceType device, at::ScalarType dtype) {
  at::autocast::set_autocast_dtype(device, dtype);
}
#else
bool autocast_enabled(at::DeviceType device) {
  return device == at::kCPU   ? at::autocast::is_cpu_enabled()
         : device == at::kXPU ? at::autocast::is_xpu_enabled()
                              : at::autocast::is_enabled();
}
void set_autocast_enabled(at::DeviceType device, bool enabled) {
  device == at::kCPU   ? at::autocast::set_cpu_enabled(enabled)
  : device == at::kXPU ? at::autocast::set_xpu_enabled(enabled)
                       : at::autocast::set_enabled(enabled);
}
at::ScalarType autocast_dtype(at::DeviceType device) {
  return device == at::kCPU   ? at::autocast::get_autocast_cpu_dtype()
         : device == at::kXPU ? at::autocast::get_autocast_xpu_dtype()
                              : at::autocast::get_autocast_gpu_dtype();
}
void set_autocast_dtype(at::DeviceType device, at::ScalarType dtype) {
  device == at::kCPU   ? at::autocast::set_autocast_cpu_dtype(dtype)
  : device == at::kXPU ? at::autocast::set_autocast_xpu_dtype(dtype)
                       : at::autocast::set_autocast_gpu_dtype(dtype);
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
