#include "tandem/graph/pt2_types.h"

namespace tandem {

namespace {

template <typename T>
struct EnumRow {
  int64_t number;
  T value;
};

constexpr EnumRow<at::ScalarType> kPt2Dtypes[] = {
    {1, at::kByte},  {2, at::kChar},      {3, at::kShort}, {4, at::kInt},
    {5, at::kLong},  {6, at::kHalf},      {7, at::kFloat}, {8, at::kDouble},
    {12, at::kBool}, {13, at::kBFloat16},
};
constexpr EnumRow<at::Layout> kPt2Layouts[] = {{7, at::kStrided}};
constexpr EnumRow<at::MemoryFormat> kPt2MemoryFormats[] = {
    {1, at::MemoryFormat::Contiguous},
    {2, at::MemoryFormat::ChannelsLast},
    {3, at::MemoryFormat::ChannelsLast3d},
    {4, at::MemoryFormat::Preserve},
};

template <typename Rows>
auto from_number(const Rows& rows, int64_t number)
    -> std::optional<decltype(rows[0].value)> {
  for (const auto& row : rows) {
    if (row.number == number) {
      return row.value;
    }
  }
  return std::nullopt;
}

template <typename Rows, typename T>
std::optional<int64_t> to_number(const Rows& rows, T value) {
  for (const auto& row : rows) {
    if (row.value == value) {
      return row.number;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<at::ScalarType> pt2_dtype(int64_t number) {
  return from_number(kPt2Dtypes, number);
}

std::optional<at::Layout> pt2_layout(int64_t number) {
  return from_number(kPt2Layouts, number);
}

std::optional<at::MemoryFormat> pt2_memory_format(int64_t number) {
  return from_number(kPt2MemoryFormats, number);
}

std::optional<int64_t> pt2_number(at::ScalarType dtype) {
  return to_number(kPt2Dtypes, dtype);
}

std::optional<int64_t> pt2_number(at::Layout layout) {
  return to_number(kPt2Layouts, layout);
}

std::optional<int64_t> pt2_number(at::MemoryFormat format) {
  return to_number(kPt2MemoryFormats, format);
}

}  // namespace tandem
