#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

/// Type of the numbers of a data set, stored in the byte order of the host.
enum class ElementType : uint8_t { uint8, float32, int64 };

/// Returns the number of bytes of an element.
constexpr size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return sizeof(float);
    case ElementType::int64:
      return sizeof(int64_t);
    default:
      return 1;
  }
}

/// Returns the name of a type, such as "float32".
constexpr const char* name_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return "float32";
    case ElementType::int64:
      return "int64";
    default:
      return "uint8";
  }
}

}  // namespace tandem
