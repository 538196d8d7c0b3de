#include "tandem/data/data_memory.h"

#include "tandem/base/error.h"
#include "tandem/base/memory.h"

namespace tandem {

void check_data_memory(
    const std::string& what, size_t bytes, const std::string& alternative) {
  const auto most = static_cast<size_t>(free_memory() / 2);
  if (bytes > most) {
    throw ConfigError(
        "[data] " + what + " has " + std::to_string(bytes) +
        " bytes, more than half of the free memory (" + std::to_string(most) +
        "); free some memory, or " + alternative);
  }
}

}  // namespace tandem
