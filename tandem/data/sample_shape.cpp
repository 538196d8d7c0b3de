#include "tandem/data/sample_shape.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

std::vector<int64_t> parse_shape(const DataOptions& options, int64_t numel) {
  std::vector<int64_t> shape;
  int64_t product = 1;
  bool fits = true;
  for (const auto& part : split(options.shape, ',')) {
    const auto size = parse_number<int64_t>(part).value_or(0);
    fits = fits && size >= 1 && !__builtin_mul_overflow(product, size, &product);
    shape.push_back(size);
  }
  if (!fits || product != numel) {
    throw ConfigError(fmt::format(
        "[data] shape is '{}', expected sizes of {} numbers, such as 1,28,28 for 784; "
        "change --shape",
        options.shape, numel));
  }
  return shape;
}

}  // namespace tandem
