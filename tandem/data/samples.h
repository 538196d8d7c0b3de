#pragma once

#include <cstdint>
#include <vector>

#include "tandem/base/bytes.h"
#include "tandem/data/element_type.h"

namespace tandem {

/// The inputs or the targets of a data set, in the order of the samples. Copies share
/// the immutable bytes.
struct Samples {
  ElementType type = ElementType::uint8;
  // Sizes of one sample, such as {channels, height, width}; {} for a single number.
  std::vector<int64_t> shape;
  // May contain more samples than Dataset::size.
  Bytes bytes;
  // True if `bytes` are the pages of a mapped file, which processes share and which may
  // be larger than main memory.
  bool is_mapped = false;

  /// Returns the number of elements of a sample.
  int64_t numel() const {
    int64_t numel = 1;
    for (const int64_t size : shape) {
      numel *= size;
    }
    return numel;
  }
  /// Returns the number of bytes of a sample.
  int64_t sample_bytes() const {
    return numel() * static_cast<int64_t>(size_of(type));
  }
  /// Returns the number of bytes of `count` samples.
  int64_t bytes_of(int64_t count) const {
    return count * sample_bytes();
  }
  /// Returns the first byte of the sample in this place. The place must be valid.
  const uint8_t* at(int64_t place) const {
    return bytes.data() + place * sample_bytes();
  }
  /// Returns element number `index`, counted over all samples. The type must not be
  /// float32.
  int64_t integer(int64_t index) const {
    return type == ElementType::int64
               ? reinterpret_cast<const int64_t*>(bytes.data())[index]
               : bytes[static_cast<size_t>(index)];
  }
};

}  // namespace tandem
