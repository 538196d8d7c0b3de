#include "tandem/data/sample_shape.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

std::vector<int64_t> parse_shape(const DataOptions& options, int64_t numel) {
  const auto shape = parse_sizes(options.shape, ',');
  int64_t product = 1;
  bool fits = shape.has_value();
  for (size_t i = 0; fits && i < shape->size(); ++i) {
    fits = !__builtin_mul_overflow(product, (*shape)[i], &product);
  }
  if (!fits || product != numel) {
    throw ConfigError(fmt::format(
        "[data] shape is '{}', expected sizes of {} numbers, such as 1,28,28 for 784; "
        "change --shape",
        options.shape, numel));
  }
  return *shape;
}

}  // namespace tandem
