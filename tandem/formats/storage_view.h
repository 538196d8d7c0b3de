#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

/// Maximum number of dimensions of a tensor in a file.
constexpr size_t kMostDims = 64;

/// Returns whether every element of a strided tensor is in a storage of `storage_numel`
/// elements. Sizes, strides and the offset count elements. Also returns false for
/// negative numbers, for more than kMostDims dimensions, and if the number of elements
/// overflows 64 bits.
bool is_inside(
    int64_t storage_numel, int64_t offset, const std::vector<int64_t>& sizes,
    const std::vector<int64_t>& strides);

}  // namespace tandem
