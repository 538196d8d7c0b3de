#include "tandem/graph/pt2_types.h"

namespace tandem {

std::optional<at::ScalarType> pt2_dtype(int64_t number) {
  switch (number) {
    case 1:
      return at::kByte;
    case 2:
      return at::kChar;
    case 3:
      return at::kShort;
    case 4:
      return at::kInt;
    case 5:
      return at::kLong;
    case 6:
      return at::kHalf;
    case 7:
      return at::kFloat;
    case 8:
      return at::kDouble;
    case 12:
      return at::kBool;
    case 13:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::optional<at::Layout> pt2_layout(int64_t number) {
  constexpr int64_t kStrided = 7;
  return number == kStrided ? std::optional<at::Layout>(at::kStrided) : std::nullopt;
}

std::optional<at::MemoryFormat> pt2_memory_format(int64_t number) {
  switch (number) {
    case 1:
      return at::MemoryFormat::Contiguous;
    case 2:
      return at::MemoryFormat::ChannelsLast;
    case 3:
      return at::MemoryFormat::ChannelsLast3d;
    case 4:
      return at::MemoryFormat::Preserve;
    default:
      return std::nullopt;
  }
}

}  // namespace tandem
