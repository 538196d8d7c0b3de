#pragma once

/// The differences between LibTorch versions, 1.13 to the newest: the only
/// place with version #ifs.

#include <torch/version.h>

// c10d::Store::clone() came in 2.7, as pure virtual.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
#define TANDEM_STORE_CLONE_OVERRIDE override
#else
#define TANDEM_STORE_CLONE_OVERRIDE
#endif
