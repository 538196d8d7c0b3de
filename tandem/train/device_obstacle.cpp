#include "tandem/train/device_obstacle.h"

#include <fmt/core.h>

#include <cstdlib>

namespace tandem {

std::string device_obstacle(const RunConfig& config) {
  const auto kind = config.strategy.kind;
  return has_trait(kind, kSharesParameters) ? std::string("ranks of ") + name_of(kind) +
                                                  " share parameters in main memory"
                                            : "";
}

std::string precision_obstacle(Precision precision, const std::string& capability) {
  // Ampere, the first with tensor cores for both.
  constexpr int kLeastMajor = 8;
  const bool needs_it = precision == Precision::tf32 || precision == Precision::bf16;
  if (!needs_it || std::atoi(capability.c_str()) >= kLeastMajor) {
    return "";
  }
  return fmt::format(
      "precision {} needs compute capability {}.0, and it has {}; use --precision fp16 "
      "or fp32",
      name_of(precision), kLeastMajor, capability);
}

}  // namespace tandem
