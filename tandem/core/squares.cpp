#include "tandem/core/squares.h"

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"

namespace tandem {

namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPart = 1 << 15;

template <typename T>
TANDEM_ALWAYS_INLINE DoubledSum sum_of_squares(int64_t n, const T* values) {
  DoubledSum sums[kLanes];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane].add(value * value);
    }
  }
  for (; i < n; ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[0].add(value * value);
  }
  DoubledSum sum;
  for (const auto& lane : sums) {
    sum.add(lane);
  }
  return sum;
}

// The square of a float32 is exact in float64, so fused instructions have equal
// results.
TANDEM_SIMD_CLONES DoubledSum part_squares(int64_t n, const float* values) {
  return sum_of_squares(n, values);
}

// Without clones, because fused instructions would round in another way.
DoubledSum part_squares(int64_t n, const double* values) {
  return sum_of_squares(n, values);
}

template <typename T>
DoubledSum sum_of_parts(const at::Tensor& tensor) {
  const auto* values = tensor.data_ptr<T>();
  std::vector<DoubledSum> parts(
      static_cast<size_t>((tensor.numel() + kPart - 1) / kPart));
  parallel_for_each(static_cast<int64_t>(parts.size()), 1, [&](int64_t i) {
    const int64_t first = i * kPart;
    parts[static_cast<size_t>(i)] =
        part_squares(std::min(kPart, tensor.numel() - first), values + first);
  });
  DoubledSum sum;
  for (const auto& part : parts) {
    sum.add(part);
  }
  return sum;
}

}  // namespace

DoubledSum squares_in(const at::Tensor& tensor) {
  TANDEM_CHECK(tensor.is_non_overlapping_and_dense(), "a norm of a tensor with gaps");
  return tensor.scalar_type() == at::kDouble ? sum_of_parts<double>(tensor)
                                             : sum_of_parts<float>(tensor);
}

}  // namespace tandem
