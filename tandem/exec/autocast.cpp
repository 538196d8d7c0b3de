#include "tandem/exec/autocast.h"

#include <ATen/autocast_mode.h>

#include "tandem/core/torch_compat.h"

namespace tandem {

Autocast::Autocast(bool on, at::DeviceType device)
    : device_(device),
      enabled_before_(autocast_enabled(device)),
      cached_before_(at::autocast::is_autocast_cache_enabled()),
      dtype_before_(autocast_dtype(device)) {
  set_autocast_enabled(device_, on);
  if (!on) {
    return;
  }
  set_autocast_dtype(device_, at::kBFloat16);
  // A forward pass converts each weight only once, so the cache of converted weights
  // would not save time. All threads would also share the cache.
  at::autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  at::autocast::set_autocast_cache_enabled(cached_before_);
  set_autocast_enabled(device_, enabled_before_);
  set_autocast_dtype(device_, dtype_before_);
}

}  // namespace tandem
