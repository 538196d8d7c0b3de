#pragma once

#include <cstddef>
#include <string>

namespace tandem {

/// Throws ConfigError if `bytes` bytes would use more than half of the free memory.
/// Half is the limit because the data may be copied once (base/bytes.h). In the error,
/// `what` names the data, such as "'FILE'", and `alternative` is an action.
void check_data_memory(
    const std::string& what, size_t bytes,
    const std::string& alternative = "set --data to smaller data");

}  // namespace tandem
