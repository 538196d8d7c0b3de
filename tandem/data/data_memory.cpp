#include "tandem/data/data_memory.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/memory.h"

namespace tandem {

void check_data_memory(
    const std::string& what, size_t bytes, const std::string& alternative) {
  const auto most = static_cast<size_t>(free_memory() / 2);
  if (bytes > most) {
    throw ConfigError(fmt::format(
        "[data] {} has {} bytes, more than half of the free memory ({}); free some "
        "memory, or {}",
        what, bytes, most, alternative));
  }
}

}  // namespace tandem
