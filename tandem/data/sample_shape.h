#pragma once

#include <cstdint>
#include <vector>

#include "tandem/config/options/data_options.h"

namespace tandem {

/// Returns the sizes in DataOptions::shape, such as {1, 28, 28} for "1,28,28". Throws
/// ConfigError if the setting has another form, or if the product of the sizes is not
/// `numel`.
[[nodiscard]] std::vector<int64_t> parse_shape(
    const DataOptions& options, int64_t numel);

}  // namespace tandem
