#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

/// Immutable bytes, in the memory of a vector or in a mapped file (mapped_file.h).
/// Copies share the memory, and the last copy frees it. Thread-safe.
class Bytes {
 public:
  using value_type = uint8_t;
  using const_iterator = const uint8_t*;

  Bytes() = default;

  /// Takes ownership of the memory of a vector of numbers. The bytes of each number are
  /// in the byte order of the host.
  template <typename Number>
  Bytes(std::vector<Number> values) {  // NOLINT(google-explicit-constructor)
    static_assert(std::is_arithmetic_v<Number>);
    const auto owner = std::make_shared<const std::vector<Number>>(std::move(values));
    data_ = std::shared_ptr<const uint8_t>(
        owner, reinterpret_cast<const uint8_t*>(owner->data()));
    size_ = owner->size() * sizeof(Number);
  }

  /// Shares the `size` bytes at `data`. The deleter of `data` frees them.
  Bytes(std::shared_ptr<const uint8_t> data, size_t size)
      : data_(std::move(data)), size_(size) {}

  const uint8_t* data() const {
    return data_.get();
  }
  size_t size() const {
    return size_;
  }
  bool empty() const {
    return size_ == 0;
  }
  const_iterator begin() const {
    return data();
  }
  const_iterator end() const {
    return data() + size_;
  }
  uint8_t operator[](size_t at) const {
    return data()[at];
  }

  friend bool operator==(const Bytes& a, const Bytes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator!=(const Bytes& a, const Bytes& b) {
    return !(a == b);
  }

 private:
  std::shared_ptr<const uint8_t> data_;
  size_t size_ = 0;
};

}  // namespace tandem
