#include "tandem/core/parallel.h"

#include <ATen/Parallel.h>

namespace tandem {

void parallel_for(
    int64_t begin, int64_t end, int64_t grain,
    const std::function<void(int64_t first, int64_t last)>& part) {
  at::parallel_for(
      begin, end, grain, [&](int64_t first, int64_t last) { part(first, last); });
}

}  // namespace tandem
