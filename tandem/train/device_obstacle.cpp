#include "tandem/train/device_obstacle.h"

namespace tandem {

std::string device_obstacle(const RunConfig& config) {
  const auto kind = config.strategy.kind;
  return has_trait(kind, kSharesParameters) ? std::string("ranks of ") + name_of(kind) +
                                                  " share parameters in main memory"
                                            : "";
}

}  // namespace tandem
