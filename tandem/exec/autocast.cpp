#include "tandem/exec/autocast.h"

#include <ATen/autocast_mode.h>

#include "tandem/core/torch_compat.h"

namespace tandem {

Autocast::Autocast(bool on) : on_(on) {
  if (!on_) {
    return;
  }
  enabled_before_ = cpu_autocast_enabled();
  dtype_before_ = cpu_autocast_dtype();
  cached_before_ = at::autocast::is_autocast_cache_enabled();
  set_cpu_autocast_dtype(at::kBFloat16);
  set_cpu_autocast_enabled(true);
  // The cache gains nothing, since a forward pass converts each weight once, and all
  // threads share it.
  at::autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  if (on_) {
    at::autocast::set_autocast_cache_enabled(cached_before_);
    set_cpu_autocast_enabled(enabled_before_);
    set_cpu_autocast_dtype(dtype_before_);
  }
}

}  // namespace tandem
