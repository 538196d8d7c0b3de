#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Type of the numbers of a data set, stored in the byte order of the host.
enum class ElementType : uint8_t { uint8, float32, int64 };
template <>
struct Choices<ElementType> {
  static constexpr Choice<ElementType> rows[] = {
      {ElementType::uint8, "uint8"},
      {ElementType::float32, "float32"},
      {ElementType::int64, "int64"}};
};

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

}  // namespace tandem
