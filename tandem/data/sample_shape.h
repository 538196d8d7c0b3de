#pragma once

#include <cstdint>
#include <vector>

#include "tandem/config/options/data_options.h"

namespace tandem {

/// Returns the sizes in DataOptions::shape, such as {1, 28, 28} for "1,28,28". Throws
/// ConfigError if it is another text, or if the sizes are not those of `numel`
/// elements.
[[nodiscard]] std::vector<int64_t> parse_shape(
    const DataOptions& options, int64_t numel);

}  // namespace tandem
